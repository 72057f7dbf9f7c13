# lz4, zstd and Snappy as targets: reverie_lz4, reverie_zstd, reverie_snappy. Used by the build and by the installed package.
#
# Static where there is a choice: other libraries of a process, TensorFlow among them, bring a zstd and
# a Snappy of their own, and with ours inside and hidden no program can take one for the other. Debian's
# archive of Snappy for shared libraries has a name of its own; the plain one need not be relocatable.
set(reverie_lz4_header lz4.h)
set(reverie_zstd_header zstd.h)
set(reverie_snappy_header snappy-c.h)
set(reverie_snappy_archive libsnappy-shared.a)
foreach(reverie_name IN ITEMS lz4 zstd snappy)
  if(TARGET reverie_${reverie_name})
    continue()
  endif()
  find_path(REVERIE_${reverie_name}_INCLUDE_DIR ${reverie_${reverie_name}_header})
  find_library(REVERIE_${reverie_name}_LIBRARY
               NAMES ${reverie_${reverie_name}_archive}
                     ${CMAKE_STATIC_LIBRARY_PREFIX}${reverie_name}${CMAKE_STATIC_LIBRARY_SUFFIX}
                     ${reverie_name})
  mark_as_advanced(REVERIE_${reverie_name}_INCLUDE_DIR REVERIE_${reverie_name}_LIBRARY)
  if(NOT REVERIE_${reverie_name}_INCLUDE_DIR OR NOT REVERIE_${reverie_name}_LIBRARY)
    message(FATAL_ERROR "reverie needs ${reverie_name}, which was not found; on Debian install "
                        "lib${reverie_name}-dev")
  endif()
  add_library(reverie_${reverie_name} INTERFACE IMPORTED)
  set_target_properties(
    reverie_${reverie_name}
    PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${REVERIE_${reverie_name}_INCLUDE_DIR}"
               INTERFACE_LINK_LIBRARIES "${REVERIE_${reverie_name}_LIBRARY}")
endforeach()
