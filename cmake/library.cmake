# The library: all of src/reverie but the tests, static and position independent.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/compression.cmake)

file(GLOB_RECURSE reverie_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/reverie/*.cc)
list(FILTER reverie_sources EXCLUDE REGEX "_test\\.cc$")

add_library(reverie STATIC ${reverie_sources})
add_library(reverie::reverie ALIAS reverie)
target_compile_features(reverie PUBLIC cxx_std_20)
target_include_directories(reverie PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                          $<INSTALL_INTERFACE:include>)
# fmt's headers alone: base/format.cc holds its implementation, so no shared libfmt is needed.
target_include_directories(
  reverie SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
target_link_libraries(reverie PUBLIC Threads::Threads ${CMAKE_DL_LIBS} PRIVATE
                      reverie_lz4 reverie_zstd $<BUILD_INTERFACE:reverie_warnings>)
