# cmake --install: headers, library, and find_package(reverie CONFIG) for projects outside the tree.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(NOT SKBUILD)  # a wheel holds the extension alone
  set(reverie_package ${CMAKE_INSTALL_LIBDIR}/cmake/reverie)
  install(TARGETS reverie EXPORT reverie_targets ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT reverie_targets NAMESPACE reverie:: FILE reverie-targets.cmake
          DESTINATION ${reverie_package})
  if(TARGET reverie_box2d)  # find_package(reverie COMPONENTS box2d) gives reverie::box2d
    install(TARGETS reverie_box2d EXPORT reverie_box2d_targets
            ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
    install(EXPORT reverie_box2d_targets NAMESPACE reverie:: FILE reverie-box2d-targets.cmake
            DESTINATION ${reverie_package})
  endif()
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/reverie DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
          FILES_MATCHING PATTERN "*.h"
          PATTERN "*_body.h" EXCLUDE)  # for the sources that say what its names are
  configure_package_config_file(
    ${CMAKE_CURRENT_LIST_DIR}/reverie-config.cmake.in ${PROJECT_BINARY_DIR}/reverie-config.cmake
    INSTALL_DESTINATION ${reverie_package})
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/reverie-config-version.cmake
                                   COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/reverie-config.cmake
                ${PROJECT_BINARY_DIR}/reverie-config-version.cmake
                ${CMAKE_CURRENT_LIST_DIR}/compression.cmake DESTINATION ${reverie_package})
endif()
