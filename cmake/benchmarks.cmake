# Each benchmarks/cc/x_bench.cc is a program of its own. All of them are the target `benchmarks`, and
# none is built by default: together they cost as much as the Python extension.
find_package(benchmark REQUIRED)

file(GLOB_RECURSE reverie_benchmarks CONFIGURE_DEPENDS
     ${PROJECT_SOURCE_DIR}/benchmarks/cc/*_bench.cc)
if(NOT TARGET reverie_box2d)
  list(FILTER reverie_benchmarks EXCLUDE REGEX "/native_env_bench\\.cc$")
endif()
add_custom_target(benchmarks)
foreach(source IN LISTS reverie_benchmarks)
  cmake_path(GET source STEM name)
  add_executable(${name} EXCLUDE_FROM_ALL ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY
                                           ${PROJECT_BINARY_DIR}/benchmarks)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})  # "tests/support/x.h"
  target_link_libraries(${name} PRIVATE reverie reverie_warnings benchmark::benchmark
                                        benchmark::benchmark_main
                                        $<TARGET_NAME_IF_EXISTS:reverie_box2d>)
  add_dependencies(benchmarks ${name})
endforeach()

# The peer of gradient_step_bench, where libeigen3-dev is there.
find_package(Eigen3 3.4 QUIET NO_MODULE)
if(TARGET Eigen3::Eigen)
  target_link_libraries(gradient_step_bench PRIVATE Eigen3::Eigen)
  target_compile_definitions(gradient_step_bench PRIVATE REVERIE_HAS_EIGEN)
  # g++ 12's own AVX-512 header has what it warns of.
  target_compile_options(gradient_step_bench PRIVATE -march=native
                                                     $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-uninitialized>)
endif()
