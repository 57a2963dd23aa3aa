# Whole-program tests of the engine on the models in the source tree.
add_library(wader_test_models STATIC ${CMAKE_CURRENT_SOURCE_DIR}/test_models.cpp)
target_link_libraries(wader_test_models PUBLIC wader_engine wader_install GTest::gtest)
target_compile_definitions(wader_test_models PRIVATE WADER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")

wader_test(same_bits SOURCES same_bits_test.cpp LIBS wader_test_models LABELS short threaded)
wader_test(sessions SOURCES sessions_test.cpp LIBS wader_test_models LABELS short)
wader_test(turns SOURCES turns_test.cpp LIBS wader_test_models LABELS short)
wader_test(scheduler SOURCES scheduler_test.cpp LIBS wader_test_models wader_server LABELS short threaded)
wader_test(damage SOURCES damage_test.cpp LIBS wader_test_models LABELS short threaded)
wader_test(in_place SOURCES in_place_test.cpp in_place_faults_test.cpp LIBS wader_test_models LABELS short)
wader_test(read_setup SOURCES read_setup_test.cpp LIBS wader_test_models LABELS short)
# Sanitizers bring their own operator new.
if(NOT WADER_SANITIZE)
  wader_test(no_allocation SOURCES no_allocation_test.cpp LIBS wader_test_models LABELS short)
endif()
wader_test(reference SOURCES reference_test.cpp LIBS wader_test_models wader_cli LABELS short)
wader_test(demo_quality SOURCES demo_quality_test.cpp LIBS wader_test_models TIMEOUT 600)
wader_test(budget SOURCES budget_test.cpp child_process.cpp LIBS wader_base)
wader_test(variants SOURCES variants_test.cpp LIBS wader_test_models wader_oracle LABELS short)
# Real processes at the limit of a memory cgroup; skipped where none can be made.
add_executable(load_worker ${CMAKE_CURRENT_SOURCE_DIR}/load_worker.cpp)
target_link_libraries(load_worker PRIVATE wader_options wader_engine)
wader_test(memory_pressure SOURCES memory_pressure_test.cpp memory_cgroup.cpp child_process.cpp LIBS wader_base wader_bench
  LABELS process TIMEOUT 1800)
target_compile_definitions(wader_memory_pressure_test PRIVATE LOAD_WORKER="$<TARGET_FILE:load_worker>")
add_dependencies(wader_memory_pressure_test load_worker)
