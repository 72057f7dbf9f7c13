# Each tests/fuzz/x_fuzz.cc is a libFuzzer program; as a test it runs a fixed number of inputs that
# start from tests/fuzz/corpus/x. What it finds goes to the build folder, never into the tree.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "REVERIE_BUILD_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}: use --preset fuzz")
endif()
set(REVERIE_FUZZ_RUNS 20000 CACHE STRING "Inputs that each fuzz test tries")
# The library too reports its branches to the fuzzer.
target_compile_options(reverie PRIVATE -fsanitize=fuzzer-no-link)

enable_testing()
file(GLOB_RECURSE reverie_fuzzers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
add_custom_target(fuzzers)
foreach(source IN LISTS reverie_fuzzers)
  cmake_path(GET source STEM name)
  string(REGEX REPLACE "_fuzz$" "" subject ${name})
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${subject})
  if(NOT IS_DIRECTORY ${corpus})
    message(FATAL_ERROR "${name} has no corpus: put at least one valid input in ${corpus}")
  endif()
  set(scratch ${PROJECT_BINARY_DIR}/fuzz/${subject})
  file(MAKE_DIRECTORY ${scratch})
  add_executable(${name} ${source})
  target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
  target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})  # "tests/fuzz/input.h"
  target_link_libraries(${name} PRIVATE reverie reverie_warnings)
  add_dependencies(fuzzers ${name})
  set(runs ${REVERIE_FUZZ_RUNS})
  if(subject STREQUAL "http2" AND runs GREATER 100000)
    set(runs 100000)  # each input is a whole connection: a million take 20 minutes
  endif()
  add_test(NAME fuzz.${subject}
           COMMAND ${name} -runs=${runs} -seed=1 -print_final_stats=1 -timeout=10
                   -rss_limit_mb=2048 -artifact_prefix=${scratch}/found- ${scratch} ${corpus})
endforeach()
