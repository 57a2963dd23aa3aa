# The targets that base/, tensor/ and kernels/ link, for a machine whose libraries are not here (WADER_KERNELS_ONLY): fmt,
# nlohmann-json and xxHash are the headers of this machine's packages, the same for every machine; GoogleTest is built
# from the sources that Debian's package googletest installs.

find_package(Threads REQUIRED)

# Links in a folder of their own: /usr/include itself would bring this machine's C library.
set(header_only_include ${CMAKE_BINARY_DIR}/include)
file(MAKE_DIRECTORY ${header_only_include})
foreach(header fmt nlohmann xxhash.h)
  set(found HEADER_ONLY_${header})
  find_path(${found} ${header} PATHS /usr/include /usr/local/include NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
  file(CREATE_LINK ${${found}}/${header} ${header_only_include}/${header} SYMBOLIC)
endforeach()

function(header_only_target target)
  add_library(${target} INTERFACE IMPORTED)
  target_include_directories(${target} INTERFACE ${header_only_include})
  target_compile_definitions(${target} INTERFACE ${ARGN})
endfunction()
header_only_target(fmt::fmt FMT_HEADER_ONLY)
header_only_target(nlohmann_json::nlohmann_json)
header_only_target(PkgConfig::XXHASH XXH_INLINE_ALL)

find_path(GOOGLETEST_SOURCES googlemock/CMakeLists.txt
  PATHS /usr/src/googletest NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH REQUIRED)
add_subdirectory(${GOOGLETEST_SOURCES} ${CMAKE_BINARY_DIR}/googletest EXCLUDE_FROM_ALL)
target_compile_options(gtest PRIVATE -w)  # g++ 12 warns of it falsely
