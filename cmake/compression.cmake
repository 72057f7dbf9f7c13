# lz4 and zstd as targets: reverie_lz4, reverie_zstd. Used by the build and by the installed package.
#
# Static where there is a choice: other libraries of a process, TensorFlow among them, bring a zstd of
# their own, and with ours inside and hidden nobody can take one for the other.
foreach(reverie_name IN ITEMS lz4 zstd)
  if(TARGET reverie_${reverie_name})
    continue()
  endif()
  find_path(REVERIE_${reverie_name}_INCLUDE_DIR ${reverie_name}.h)
  find_library(REVERIE_${reverie_name}_LIBRARY
               NAMES ${CMAKE_STATIC_LIBRARY_PREFIX}${reverie_name}${CMAKE_STATIC_LIBRARY_SUFFIX}
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
