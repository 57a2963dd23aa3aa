# A second, naive implementation of the forward pass, and the random checkpoints on which the engine is compared
# with it. It links no library of src/, so that it cannot share a fault with them.
add_library(wader_oracle STATIC ${CMAKE_CURRENT_LIST_DIR}/oracle.cpp ${CMAKE_CURRENT_LIST_DIR}/oracle_load.cpp
  ${CMAKE_CURRENT_LIST_DIR}/oracle_safetensors.cpp ${CMAKE_CURRENT_LIST_DIR}/oracle_variants.cpp)
target_link_libraries(wader_oracle PUBLIC wader_options fmt::fmt nlohmann_json::nlohmann_json)
if(WADER_SANITIZE)
  target_compile_options(wader_oracle PRIVATE -O1)
else()
  target_precompile_headers(wader_oracle REUSE_FROM wader_precompiled)
endif()

wader_test(oracle SOURCES ${CMAKE_CURRENT_LIST_DIR}/oracle_test.cpp LIBS wader_oracle LABELS short)
