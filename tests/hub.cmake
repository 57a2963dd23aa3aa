# Installing from a hub of models: the stub that stands for it, and the built program against the stub.
# find_program(NODE …) is harmony.cmake's; without node the tests say that they skip.
if(NODE)
  set(hub_node ${NODE})
  add_test(NAME hub_stub COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/hub/honest.mjs)
  set_tests_properties(hub_stub PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120)
else()
  set(hub_node "")
endif()

# wader_hub_test(NAME TIMEOUT seconds LABELS labels…): tests/NAME_test.cpp with the stub's harness.
function(wader_hub_test name)
  wader_test(${name} SOURCES ${CMAKE_CURRENT_LIST_DIR}/${name}_test.cpp
    ${CMAKE_CURRENT_LIST_DIR}/hub_stub.cpp ${CMAKE_CURRENT_LIST_DIR}/cli_process.cpp
    LIBS wader_install wader_container util ${ARGN})
  target_compile_definitions(wader_${name}_test PRIVATE
    WADER_PROGRAM="$<TARGET_FILE:wader>" WADER_NODE="${hub_node}")
  add_dependencies(wader_${name}_test wader)
endfunction()
wader_hub_test(hub_install LABELS short TIMEOUT 600)
wader_hub_test(hub_hostile LABELS short TIMEOUT 900)
wader_hub_test(hub_proof LABELS short TIMEOUT 300)
wader_hub_test(hub_client LABELS short TIMEOUT 300)
wader_hub_test(hub_faults LABELS process TIMEOUT 900)
