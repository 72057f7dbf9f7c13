# Headers that are compiled once for all sources of a target, where REVERIE_PRECOMPILED_HEADER says so:
# half of what a small source costs is the standard library and fmt.
#
# Only headers that never change here, in angle brackets: ours would make every source depend on them,
# and paths of this checkout would hide the result from a compiler cache. The tidy preset goes without,
# and so notices a missing include.
set(reverie_common_headers
    <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring>
    <deque> <functional> <limits> <map> <memory> <mutex> <optional> <set> <span> <string> <string_view>
    <thread> <unordered_map> <utility> <vector> <fmt/core.h>)

# reverie_precompile(<target> [<header>...]): the common headers, and these before them.
function(reverie_precompile target)
  if(REVERIE_PRECOMPILED_HEADER)
    target_precompile_headers(${target} PRIVATE ${ARGN} ${reverie_common_headers})
  endif()
endfunction()

# Programs that are built to run once or for a moment: pages, examples, fuzz targets. They share one
# precompiled header, and no caller waits for what they do, so they are not optimised.
function(reverie_small_program target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O0>)
  target_link_libraries(${target} PRIVATE reverie reverie_warnings)
  get_target_property(type ${target} TYPE)
  if(type STREQUAL "EXECUTABLE")  # as a library's sources, so that both take the same header
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  if(REVERIE_PRECOMPILED_HEADER)
    if(NOT TARGET reverie_small_headers)
      file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/small_headers.cc CONTENT "// Only headers.\n")
      add_library(reverie_small_headers OBJECT ${PROJECT_BINARY_DIR}/generated/small_headers.cc)
      target_compile_options(reverie_small_headers PRIVATE $<$<CONFIG:Release>:-O0>)
      target_link_libraries(reverie_small_headers PRIVATE reverie reverie_warnings)
      reverie_precompile(reverie_small_headers)
    endif()
    target_precompile_headers(${target} REUSE_FROM reverie_small_headers)
  endif()
endfunction()
