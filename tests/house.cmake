# Tests that guard the house: the layers of src/, the layout of files, and the scripts of tools/.
wader_test(house SOURCES ${CMAKE_CURRENT_LIST_DIR}/house_test.cpp ${CMAKE_CURRENT_LIST_DIR}/house_rules.cpp
  LABELS house)

add_test(NAME tools COMMAND bash ${CMAKE_CURRENT_LIST_DIR}/tools_test.sh)
set_tests_properties(tools PROPERTIES LABELS house TIMEOUT 60)
