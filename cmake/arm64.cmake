# Toolchain: arm64 on Debian for amd64, with the libraries that tools/arm64_libraries fetches. Programs run
# under qemu, whose processor has what every arm64 has (NEON) and no more.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
set(CMAKE_LIBRARY_ARCHITECTURE aarch64-linux-gnu)
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64;-L;/usr/aarch64-linux-gnu)
add_compile_definitions(REVERIE_EMULATED)  # tests/support/resident.h

cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH reverie_root)
set(reverie_arm64 ${reverie_root}/build/arm64-libraries)
list(APPEND CMAKE_FIND_ROOT_PATH ${reverie_arm64})
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
# Archives, so that qemu needs the compiler's own libraries alone.
set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
# Where OpenSSL and zlib have the headers that differ between processors.
set(CMAKE_CXX_FLAGS_INIT "-isystem ${reverie_arm64}/usr/include/aarch64-linux-gnu")
