# Faults of an install, on real processes: kills, races, full and read-only disks, memory.
add_executable(install_worker ${CMAKE_CURRENT_LIST_DIR}/install_worker.cpp)
target_link_libraries(install_worker PRIVATE wader_options wader_install)
wader_test(install_faults SOURCES ${CMAKE_CURRENT_LIST_DIR}/install_faults_test.cpp LIBS wader_install
  LABELS process)
target_compile_definitions(wader_install_faults_test PRIVATE
  INSTALL_WORKER="$<TARGET_FILE:install_worker>")
add_dependencies(wader_install_faults_test install_worker)
