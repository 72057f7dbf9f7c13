# reverie_box2d: the environments that need Box2D, in a library of their own, so that no other target
# needs it; and the plugin of the Python package with them.
#
# Debian has Box2D as a shared library alone. A wheel brings it along, beside the plugin.
if(REVERIE_BOX2D STREQUAL "AUTO")
  find_package(box2d CONFIG QUIET)
elseif(REVERIE_BOX2D)
  find_package(box2d CONFIG REQUIRED)
endif()

if(TARGET box2d::box2d)
  add_library(reverie_box2d STATIC ${PROJECT_SOURCE_DIR}/src/reverie/env/native/lunar_lander.cc)
  add_library(reverie::box2d ALIAS reverie_box2d)
  set_target_properties(reverie_box2d PROPERTIES EXPORT_NAME box2d)
  target_link_libraries(reverie_box2d PUBLIC reverie box2d::box2d
                                      PRIVATE $<BUILD_INTERFACE:reverie_warnings>)
elseif(REVERIE_BOX2D STREQUAL "AUTO")
  message(STATUS "Box2D was not found (libbox2d-dev): LunarLander is left out")
endif()

# The plugin, for the Python package.
function(reverie_add_box2d_plugin folder)
  if(NOT TARGET reverie_box2d)
    return()
  endif()
  add_library(_box2d_envs MODULE ${PROJECT_SOURCE_DIR}/src/reverie/env/native/box2d_plugin.cc)
  set_target_properties(_box2d_envs PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY "${folder}"
                                               INSTALL_RPATH "$ORIGIN"
                                               BUILD_WITH_INSTALL_RPATH ON)
  target_link_libraries(_box2d_envs PRIVATE reverie_box2d reverie_warnings)
  target_link_options(
    _box2d_envs PRIVATE
    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/plugin_symbols.map)
  set_property(TARGET _box2d_envs APPEND PROPERTY LINK_DEPENDS
                                                  ${PROJECT_SOURCE_DIR}/cmake/plugin_symbols.map)
  add_dependencies(_reverie _box2d_envs)
  get_target_property(library box2d::box2d LOCATION)
  get_target_property(soname box2d::box2d IMPORTED_SONAME_NONE)
  if(NOT soname)
    set(soname libbox2d.so.2)
  endif()
  file(REAL_PATH ${library} library)
  reverie_install_python(TARGETS _box2d_envs LIBRARY DESTINATION reverie)
  reverie_install_python(FILES ${library} DESTINATION reverie RENAME ${soname})
endfunction()
