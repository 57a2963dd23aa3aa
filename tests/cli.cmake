# The built program as a process: every command's statuses, messages and JSON, and the chat on a terminal.
wader_test(program SOURCES ${CMAKE_CURRENT_LIST_DIR}/cli_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/bench_test.cpp ${CMAKE_CURRENT_LIST_DIR}/in_place_program_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/simulate_test.cpp ${CMAKE_CURRENT_LIST_DIR}/range_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/stats_program_test.cpp ${CMAKE_CURRENT_LIST_DIR}/terminal_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/cli_process.cpp
  LIBS wader_checkpoint util LABELS short TIMEOUT 600)
target_compile_definitions(wader_program_test PRIVATE WADER_PROGRAM="$<TARGET_FILE:wader>")
add_dependencies(wader_program_test wader)
