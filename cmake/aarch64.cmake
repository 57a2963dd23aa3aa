# Toolchain: Debian's and Ubuntu's cross compiler for 64-bit ARM (package g++-aarch64-linux-gnu), and an emulator for the
# tests (qemu-user-static).
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

find_program(AARCH64_CXX aarch64-linux-gnu-g++)
find_program(AARCH64_EMULATOR NAMES qemu-aarch64-static qemu-aarch64)
if(NOT AARCH64_CXX OR NOT AARCH64_EMULATOR)
  message(FATAL_ERROR "There is no aarch64-linux-gnu-g++ or no qemu-aarch64-static here. "
    "Install the packages g++-aarch64-linux-gnu and qemu-user-static (tools/setup.sh test does).")
endif()
set(CMAKE_CXX_COMPILER ${AARCH64_CXX})
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)  # GoogleTest's project names C, too

set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

# `max` has every extension that the emulator knows, the dot products among them.
set(CMAKE_CROSSCOMPILING_EMULATOR ${AARCH64_EMULATOR} -L ${CMAKE_FIND_ROOT_PATH} -cpu max)
