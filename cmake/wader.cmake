# Compiler settings shared by every target, and wader_folder().

add_library(wader_options INTERFACE)
target_include_directories(wader_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: a fused multiply-add in one build and not in the other would break "the same bits".
target_compile_options(wader_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor -Werror
  -ffp-contract=off)
if(WADER_SANITIZE)
  target_compile_options(wader_options INTERFACE
    -fsanitize=${WADER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(wader_options INTERFACE -fsanitize=${WADER_SANITIZE})
endif()

if(NOT WADER_FUZZ)
  find_package(GTest REQUIRED)
endif()

# wader_folder(NAME DEPS folders… LIBS targets…): library wader_NAME from src/NAME/*.cpp, and test program
# wader_NAME_test from src/NAME/*_test.cpp, registered with CTest as NAME.
function(wader_folder name)
  cmake_parse_arguments(ARG "" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cpp$")
  if(NOT sources)
    return()
  endif()
  add_library(wader_${name} STATIC ${sources})
  target_link_libraries(wader_${name} PUBLIC wader_options ${ARG_LIBS})
  foreach(dep ${ARG_DEPS})
    target_link_libraries(wader_${name} PUBLIC wader_${dep})
  endforeach()
  if(tests AND NOT WADER_FUZZ)
    add_executable(wader_${name}_test ${tests})
    target_link_libraries(wader_${name}_test PRIVATE wader_${name} GTest::gtest GTest::gmock GTest::gtest_main)
    # Tests that need files find the source tree by this.
    target_compile_definitions(wader_${name}_test PRIVATE WADER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
    add_test(NAME ${name} COMMAND wader_${name}_test)
    set_property(GLOBAL APPEND PROPERTY WADER_UNIT_TESTS wader_${name}_test)
  endif()
endfunction()
