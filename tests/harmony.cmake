# The harmony format against its two sources: the harmony project's fixtures and the released Jinja template.
# Both are read in place from WADER_SHARED_DIR/peer-data and the tests are skipped where it is not there.
set(WADER_SHARED_DIR "${CMAKE_SOURCE_DIR}/../shared" CACHE PATH "Folder with peer-data/ for tests")
find_program(NODE node)

set(HARMONY_TEMPLATE ${WADER_SHARED_DIR}/peer-data/templates/openai-gpt-oss-120b.jinja)
set(HARMONY_JINJA_CASES ${CMAKE_BINARY_DIR}/harmony_jinja.jsonl)
wader_test(harmony SOURCES ${CMAKE_CURRENT_LIST_DIR}/harmony_peer_test.cpp
  ${CMAKE_CURRENT_LIST_DIR}/harmony_jinja_test.cpp LIBS wader_chat LABELS short)
target_compile_definitions(wader_harmony_test PRIVATE
  WADER_SHARED_DIR="${WADER_SHARED_DIR}" HARMONY_TEMPLATE="${HARMONY_TEMPLATE}"
  HARMONY_JINJA_CASES="${HARMONY_JINJA_CASES}")

if(NODE)
  add_test(NAME harmony_jinja_cases COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/npm/harmony_jinja.mjs
    ${HARMONY_TEMPLATE} ${HARMONY_JINJA_CASES})
  set_tests_properties(harmony_jinja_cases PROPERTIES
    FIXTURES_SETUP harmony_jinja SKIP_RETURN_CODE 77 LABELS short TIMEOUT 60)
  set_tests_properties(harmony PROPERTIES FIXTURES_REQUIRED harmony_jinja)
endif()
