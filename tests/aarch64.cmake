# The kernels on 64-bit ARM under an emulator: which back ends a processor is given. With dot products neon is among
# them, else all its tests would be missing unseen. Without, on a processor of Armv8.0, it is not, and what is left has
# no instruction that this processor lacks.
if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$" OR NOT CMAKE_CROSSCOMPILING_EMULATOR)
  return()
endif()
add_test(NAME dot_products
  COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} $<TARGET_FILE:wader_kernels_test> --gtest_list_tests)
set_tests_properties(dot_products PROPERTIES PASS_REGULAR_EXPRESSION "EqualsPortableToTheBit/neon")
# Of two options -cpu the last counts.
add_test(NAME no_dot_products
  COMMAND ${CMAKE_CROSSCOMPILING_EMULATOR} -cpu cortex-a72 $<TARGET_FILE:wader_kernels_test>
          --gtest_filter=*IntegerTest*:*KernelsTest*)
set_tests_properties(no_dot_products PROPERTIES FAIL_REGULAR_EXPRESSION "/neon")
set_tests_properties(dot_products no_dot_products PROPERTIES LABELS unit TIMEOUT 300)
