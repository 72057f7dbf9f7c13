# What can be chosen, and the settings that every target shares.
option(REVERIE_BUILD_TESTS "Build the C++ tests" ${PROJECT_IS_TOP_LEVEL})
set(REVERIE_LIBRARY_ROOMS "" CACHE STRING "Rooms of src/reverie that are built, instead of all; for tests of these")
set(REVERIE_TEST_ROOMS "" CACHE STRING "Rooms of src/reverie whose tests are built, instead of all tests")
option(REVERIE_BUILD_EXAMPLES "Build examples/cc" ${PROJECT_IS_TOP_LEVEL})
option(REVERIE_BUILD_BENCHMARKS "Build benchmarks/cc (needs google-benchmark)" OFF)
option(REVERIE_BUILD_FUZZ "Build tests/fuzz (needs clang)" OFF)
option(REVERIE_BUILD_PYTHON "Build the Python extension (needs nanobind)" OFF)
option(REVERIE_STABLE_ABI "Build that extension for every CPython from 3.12 on" OFF)
set(REVERIE_PYTHON_OUTPUT ${PROJECT_SOURCE_DIR}/python/reverie
    CACHE PATH "Where the Python extension is written, unless a wheel is built")
set(REVERIE_BOX2D AUTO CACHE STRING "Environments on Box2D: ON (needs libbox2d-dev), OFF, or AUTO")
option(REVERIE_UCX "Let peers call each other over UCX (needs libucx-dev)" OFF)
set(REVERIE_BUILT "" CACHE PATH "A build folder whose Python extension a wheel takes instead of its own")
option(REVERIE_PRECOMPILED_HEADER "Precompile the headers of others" OFF)
option(REVERIE_UNITED_SOURCES "Compile the sources of a folder together" OFF)
option(REVERIE_WERROR "Treat warnings as errors" OFF)
set(REVERIE_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

# A single-configuration generator without a build type would build without optimisation.
get_property(reverie_multi_config GLOBAL PROPERTY GENERATOR_IS_MULTI_CONFIG)
if(PROJECT_IS_TOP_LEVEL AND NOT reverie_multi_config AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_CXX_VISIBILITY_PRESET hidden)
set(CMAKE_VISIBILITY_INLINES_HIDDEN ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

find_program(REVERIE_CCACHE ccache)
if(REVERIE_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # A precompiled header hides its macros and times from ccache, which wants to be told that it may.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros ${REVERIE_CCACHE})
endif()

if(REVERIE_SANITIZE)
  add_compile_options(-fsanitize=${REVERIE_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${REVERIE_SANITIZE})
  # The standard library checks its indices and iterators, which no sanitizer sees within a capacity.
  add_compile_definitions(_GLIBCXX_ASSERTIONS)
  if(REVERIE_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# For every target of ours, and never for those who use the library.
add_library(reverie_warnings INTERFACE)
target_compile_options(
  reverie_warnings
  INTERFACE -Wall -Wextra -Wpedantic -Wconversion -Wnon-virtual-dtor
            # A name of a source that is compiled along (united.cmake) is no shadow.
            $<$<NOT:$<BOOL:$<TARGET_PROPERTY:REVERIE_UNITED>>>:-Wshadow>
            # clang takes signs into -Wconversion, g++ does not: the same for both.
            $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>
            $<$<CXX_COMPILER_ID:Clang>:-Wthread-safety> $<$<BOOL:${REVERIE_WERROR}>:-Werror>)
