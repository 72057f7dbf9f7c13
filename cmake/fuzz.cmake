# Each tests/fuzz/x_fuzz.cc is a fuzz target; as a test it runs a fixed number of inputs that start
# from tests/fuzz/corpus/x. What it finds goes to the build folder, never into the tree.
#
# With REVERIE_BUILD_FUZZ it is a libFuzzer program, which sees the branches that an input takes and
# searches for more. That needs the whole library built by clang for it alone, so the builds of the
# tests have it with a main() of ours, tests/fuzz/mutating_main.cc, over the library as it is.
if(REVERIE_BUILD_FUZZ AND NOT CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  message(FATAL_ERROR "REVERIE_BUILD_FUZZ needs clang, not ${CMAKE_CXX_COMPILER_ID}: use --preset fuzz")
endif()
set(REVERIE_FUZZ_RUNS 100000 CACHE STRING "Inputs that each fuzz test tries")
enable_testing()

# reverie_add_fuzz(<subject> <source>): the program <subject>_fuzz, over the corpus of that name.
function(reverie_add_fuzz subject source)
  set(corpus ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${subject})
  if(NOT IS_DIRECTORY ${corpus})
    message(FATAL_ERROR "${source} has no corpus: put at least one valid input in ${corpus}")
  endif()
  set(scratch ${PROJECT_BINARY_DIR}/fuzz/${subject})
  file(MAKE_DIRECTORY ${scratch})
  add_executable(${subject}_fuzz ${source})
  target_include_directories(${subject}_fuzz PRIVATE ${PROJECT_SOURCE_DIR})  # "tests/fuzz/input.h"
  reverie_small_program(${subject}_fuzz)
  set(runs ${REVERIE_FUZZ_RUNS})
  if(subject STREQUAL "http2")
    math(EXPR runs "${runs} / 10")  # each input is a whole connection
  elseif(subject MATCHES "^(checkpoint|reverb_checkpoint|journal)$")
    math(EXPR runs "${runs} / 4")  # each input is a folder of files
  endif()
  if(REVERIE_BUILD_FUZZ)
    # clang takes no header that was compiled without this.
    set_target_properties(${subject}_fuzz PROPERTIES DISABLE_PRECOMPILE_HEADERS ON)
    target_compile_options(${subject}_fuzz PRIVATE -fsanitize=fuzzer)
    target_link_options(${subject}_fuzz PRIVATE -fsanitize=fuzzer)
    add_test(NAME fuzz.${subject}
             COMMAND ${subject}_fuzz -runs=${runs} -seed=1 -print_final_stats=1 -timeout=10
                     -rss_limit_mb=2048 -artifact_prefix=${scratch}/found- ${scratch} ${corpus})
  else()
    target_link_libraries(${subject}_fuzz PRIVATE reverie_mutating_main)
    if(NOT subject STREQUAL "guard_check")
      add_test(NAME fuzz.${subject} COMMAND ${subject}_fuzz ${runs} ${scratch} ${corpus})
    endif()
  endif()
endfunction()

if(REVERIE_BUILD_FUZZ)
  # The library too reports its branches to the fuzzer.
  target_compile_options(reverie PRIVATE -fsanitize=fuzzer-no-link)
else()
  add_library(reverie_mutating_main OBJECT ${PROJECT_SOURCE_DIR}/tests/fuzz/mutating_main.cc)
  reverie_small_program(reverie_mutating_main)
  reverie_add_fuzz(guard_check ${PROJECT_SOURCE_DIR}/tests/fuzz/guard_check.cc)
  # It ends by a signal, which ctest takes for a failure whatever was printed: a shell stands between.
  set(scratch ${PROJECT_BINARY_DIR}/fuzz/guard_check)
  add_test(NAME fuzz.finds_a_planted_fault
           COMMAND sh -c "\"$<TARGET_FILE:guard_check_fuzz>\" 1000 \"${scratch}\" \"${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/guard_check\" 2>&1 | cat")
  set_tests_properties(fuzz.finds_a_planted_fault PROPERTIES PASS_REGULAR_EXPRESSION
                                                             "the input is saved in")
endif()
file(GLOB_RECURSE reverie_fuzzers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/fuzz/*_fuzz.cc)
foreach(source IN LISTS reverie_fuzzers)
  cmake_path(GET source STEM name)
  string(REGEX REPLACE "_fuzz$" "" subject ${name})
  reverie_add_fuzz(${subject} ${source})
endforeach()
