# Tests that guard the house: the layers of src/, the layout of files, and the scripts of tools/.
wader_test(house SOURCES ${CMAKE_CURRENT_LIST_DIR}/house_test.cpp ${CMAKE_CURRENT_LIST_DIR}/house_rules.cpp
  LABELS house)

add_test(NAME tools COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/tools_test.sh)
set_tests_properties(tools PROPERTIES LABELS house TIMEOUT 60)
if(NOT WADER_SANITIZE)
  add_test(NAME wide_code COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/wide_code_test.sh
    $<TARGET_FILE:wader_kernels> $<TARGET_FILE:wader_measure>)
  set_tests_properties(wide_code PROPERTIES LABELS house TIMEOUT 60)
endif()
