# Compiler settings shared by every target, wader_folder() and wader_test().

add_library(wader_options INTERFACE)
target_include_directories(wader_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: a fused multiply-add in one build and not in the other would break "the same bits".
target_compile_options(wader_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -ffp-contract=off)
# Warnings are errors with the compiler that CI has. Elsewhere they inform: a newer compiler's new warning must
# not stop a user's build, and sanitizers make g++ warn falsely (as its manual says).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION MATCHES "^12\\." AND NOT WADER_SANITIZE)
  # The four that are off warn falsely about std::string in g++ 12 (GCC bugs 105329 and 105651).
  target_compile_options(wader_options INTERFACE -Werror -Wno-array-bounds -Wno-restrict
    -Wno-stringop-overflow -Wno-stringop-overread)
endif()
if(WADER_SANITIZE)
  target_compile_options(wader_options INTERFACE
    -fsanitize=${WADER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(wader_options INTERFACE -fsanitize=${WADER_SANITIZE})
  if(WADER_SANITIZE MATCHES "undefined")
    # AddressSanitizer stops at null and out-of-object accesses too; leaving them to it saves a third of
    # the compile time of code that uses nlohmann-json.
    target_compile_options(wader_options INTERFACE -fno-sanitize=null,object-size,vptr)
    # clang 14 cannot place this one's data before the parts of a coroutine.
    target_compile_options(wader_options INTERFACE $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
  endif()
endif()
# Test sources are compiled without optimisation and without UBSan: what they test has both. With the precompiled
# headers below this halves the time of their compilation, which is most of `make test` on two cores.
add_library(wader_test_options INTERFACE)
# GoogleTest's macros are if-else chains; random test data narrows on purpose.
target_compile_options(wader_test_options INTERFACE -O0 -Wno-conversion -Wno-dangling-else)
if(WADER_SANITIZE MATCHES "undefined")
  target_compile_options(wader_test_options INTERFACE -fno-sanitize=undefined)
endif()

# The headers that cost most to read, once for all libraries and once for all tests. Sources include what they
# use all the same: the presets debug and fuzz build without.
set(heavy_headers <nlohmann/json.hpp> <fmt/format.h> <filesystem> <functional> <memory> <span> <string> <vector>)
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/precompiled.cpp CONTENT "// Only carries the precompiled headers.\n")
add_library(wader_precompiled OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
target_link_libraries(wader_precompiled PRIVATE wader_options fmt::fmt nlohmann_json::nlohmann_json)
target_precompile_headers(wader_precompiled PRIVATE ${heavy_headers})

if(WADER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WADER_FUZZ needs clang++ (libFuzzer); use the preset: cmake --preset fuzz")
  endif()
  target_compile_options(wader_options INTERFACE -fsanitize=fuzzer-no-link)  # coverage, without its main()
else()
  if(NOT WADER_KERNELS_ONLY)
    find_package(GTest REQUIRED)
  endif()
  add_library(wader_test_precompiled OBJECT ${CMAKE_BINARY_DIR}/precompiled.cpp)
  target_link_libraries(wader_test_precompiled PRIVATE
    fmt::fmt nlohmann_json::nlohmann_json wader_options wader_test_options GTest::gtest GTest::gmock)
  target_precompile_headers(wader_test_precompiled PRIVATE ${heavy_headers} <gmock/gmock.h> <gtest/gtest.h>)
endif()

# wader_test(NAME SOURCES files… [LIBS targets…] [LABELS labels…] [TIMEOUT seconds]): GoogleTest program
# wader_NAME_test, registered with CTest as NAME. Labels decide where it runs beside the release build:
# `unit` and `short` also under AddressSanitizer with UBSan, `threaded` also under ThreadSanitizer.
# In it, WADER_SOURCE_DIR is the source tree; the environment variable WADER_BINARY is the built wader.
function(wader_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 900)  # the longest takes 150 s on two busy cores
  endif()
  add_executable(wader_${name}_test ${ARG_SOURCES})
  target_link_libraries(wader_${name}_test PRIVATE
    ${ARG_LIBS} fmt::fmt wader_options wader_test_options GTest::gtest GTest::gmock GTest::gtest_main)
  target_precompile_headers(wader_${name}_test REUSE_FROM wader_test_precompiled)
  target_compile_definitions(wader_${name}_test PRIVATE WADER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND wader_${name}_test)
  # tools/count_tests.sh sums the cases of these reports.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ENVIRONMENT
    "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/reports/${name}.xml;WADER_BINARY=${CMAKE_BINARY_DIR}/wader")
  if("threaded" IN_LIST ARG_LABELS)
    add_dependencies(wader_threaded_tests wader_${name}_test)
  endif()
  if("unit" IN_LIST ARG_LABELS OR "short" IN_LIST ARG_LABELS)
    add_dependencies(wader_short_tests wader_${name}_test)
  endif()
endfunction()
add_custom_target(wader_threaded_tests)  # what the ThreadSanitizer build makes
add_custom_target(wader_short_tests)     # what the AddressSanitizer build makes

# wader_folder(NAME [THREADED] [HOT] DEPS folders… LIBS targets…): library wader_NAME from src/NAME/*.cpp, and test
# program wader_NAME_test from src/NAME/*_test.cpp. THREADED: its tests also run under ThreadSanitizer.
# HOT: optimised in sanitizer builds too; the rest is not, which halves what they take to compile.
function(wader_folder name)
  cmake_parse_arguments(ARG "THREADED;HOT" "" "DEPS;LIBS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${name}/*.cpp)
  set(tests ${sources})
  list(FILTER tests INCLUDE REGEX "_test\\.cpp$")
  list(FILTER sources EXCLUDE REGEX "(_test|/main)\\.cpp$")
  if(NOT sources)
    return()
  endif()
  add_library(wader_${name} STATIC ${sources})
  target_link_libraries(wader_${name} PUBLIC wader_options fmt::fmt ${ARG_LIBS})
  if(ARG_HOT AND WADER_SANITIZE)
    target_compile_options(wader_${name} PRIVATE -O1)
  else()
    target_precompile_headers(wader_${name} REUSE_FROM wader_precompiled)
  endif()
  foreach(dep ${ARG_DEPS})
    target_link_libraries(wader_${name} PUBLIC wader_${dep})
  endforeach()
  set_property(GLOBAL APPEND PROPERTY WADER_LIBRARIES wader_${name})
  if(tests AND NOT WADER_FUZZ)
    set(labels unit)
    if(ARG_THREADED)
      list(APPEND labels threaded)
    endif()
    wader_test(${name} SOURCES ${tests} LIBS wader_${name} LABELS ${labels})
  endif()
endfunction()
