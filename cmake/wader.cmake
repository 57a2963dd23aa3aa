# Compiler settings shared by every target, wader_folder() and wader_test().

add_library(wader_options INTERFACE)
target_include_directories(wader_options INTERFACE ${CMAKE_SOURCE_DIR}/src)
# -ffp-contract=off: a fused multiply-add in one build and not in the other would break "the same bits".
target_compile_options(wader_options INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion -Wnon-virtual-dtor
  -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(wader_options INTERFACE -Werror)
else()
  # Clang builds the fuzz targets only; its own warnings inform. CHECK(!"reason") is a form we use.
  target_compile_options(wader_options INTERFACE -Wno-string-conversion)
endif()
if(WADER_SANITIZE)
  target_compile_options(wader_options INTERFACE
    -fsanitize=${WADER_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(wader_options INTERFACE -fsanitize=${WADER_SANITIZE})
  if(WADER_SANITIZE MATCHES "undefined")
    # AddressSanitizer stops at null and out-of-object accesses too; leaving them to it saves a third of
    # the compile time of code that uses nlohmann-json.
    target_compile_options(wader_options INTERFACE -fno-sanitize=null,object-size,vptr)
  endif()
endif()
if(WADER_FUZZ)
  if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    message(FATAL_ERROR "WADER_FUZZ needs clang++ (libFuzzer); use the preset: cmake --preset fuzz")
  endif()
  target_compile_options(wader_options INTERFACE -fsanitize=fuzzer-no-link)  # coverage, without its main()
else()
  find_package(GTest REQUIRED)
endif()

# GoogleTest's macros are if-else chains; random test data narrows on purpose; optimising test code costs more
# time than it saves. Linked last, so that its options come last.
add_library(wader_test_options INTERFACE)
target_compile_options(wader_test_options INTERFACE -Wno-conversion -Wno-dangling-else)
if(NOT WADER_SANITIZE)
  target_compile_options(wader_test_options INTERFACE -O1)
endif()

# wader_test(NAME SOURCES files… [LIBS targets…] [LABELS labels…] [TIMEOUT seconds]): GoogleTest program
# wader_NAME_test, registered with CTest as NAME. Labels decide where it runs beside the release build:
# `unit` and `short` also under AddressSanitizer with UBSan, `threaded` also under ThreadSanitizer.
# In it, WADER_SOURCE_DIR is the source tree; the environment variable WADER_BINARY is the built wader.
function(wader_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  add_executable(wader_${name}_test ${ARG_SOURCES})
  target_link_libraries(wader_${name}_test PRIVATE
    ${ARG_LIBS} wader_options wader_test_options GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(wader_${name}_test PRIVATE WADER_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND wader_${name}_test)
  # tools/count_tests.sh sums the cases of these reports.
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}" ENVIRONMENT
    "GTEST_OUTPUT=xml:${CMAKE_BINARY_DIR}/reports/${name}.xml;WADER_BINARY=${CMAKE_BINARY_DIR}/wader")
  if("threaded" IN_LIST ARG_LABELS)
    add_dependencies(wader_threaded_tests wader_${name}_test)
  endif()
endfunction()
add_custom_target(wader_threaded_tests)  # what the ThreadSanitizer build makes

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
  target_link_libraries(wader_${name} PUBLIC wader_options ${ARG_LIBS})
  if(ARG_HOT AND WADER_SANITIZE)
    target_compile_options(wader_${name} PRIVATE -O1)
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
