# Installing from a hub of models: the stub that stands for it, and the built program against the stub.
# find_program(NODE …) is harmony.cmake's.
if(NODE)
  add_test(NAME hub_stub COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/hub/honest.mjs)
  set_tests_properties(hub_stub PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 120)
endif()
