# The library: all of src/reverie but the tests, static and position independent.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
include(${CMAKE_CURRENT_LIST_DIR}/compression.cmake)
# OpenSSL goes in as archives: a program that loaded another TLS library first must not lend us its.
set(OPENSSL_USE_STATIC_LIBS ON)
find_package(OpenSSL 3 REQUIRED)
find_package(ZLIB REQUIRED)
find_path(REVERIE_ASIO_INCLUDE asio.hpp REQUIRED)
find_path(REVERIE_NGHTTP2_INCLUDE nghttp2/nghttp2.h REQUIRED)
find_library(REVERIE_NGHTTP2_LIBRARY nghttp2 REQUIRED)
find_path(REVERIE_PROTOZERO_INCLUDE protozero/pbf_reader.hpp REQUIRED)

file(GLOB_RECURSE reverie_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/reverie/*.cc)
list(FILTER reverie_sources EXCLUDE REGEX "_test\\.cc$")
if(REVERIE_LIBRARY_ROOMS)
  list(JOIN REVERIE_LIBRARY_ROOMS "|" reverie_rooms)
  list(FILTER reverie_sources INCLUDE REGEX "/src/reverie/(${reverie_rooms})/")
endif()
if(REVERIE_UCX)
  list(FILTER reverie_sources EXCLUDE REGEX "/net/ucx_absent\\.cc$")
else()
  list(FILTER reverie_sources EXCLUDE REGEX "/net/ucx_(connection|worker)\\.cc$")
endif()
list(FILTER reverie_sources EXCLUDE REGEX "/env/native/(lunar_lander|box2d_plugin)\\.cc$")  # box2d.cmake

# Native environments give the bits of the originals: no product and sum may become one operation.
set(reverie_exact_sources ${reverie_sources})
list(FILTER reverie_exact_sources INCLUDE REGEX "/env/native/")
set_source_files_properties(${reverie_exact_sources} PROPERTIES COMPILE_OPTIONS -ffp-contract=off
                                                                SKIP_PRECOMPILE_HEADERS ON)

# Kernels of networks: one body, compiled for each instruction set and chosen at run time. A product and
# a sum are one operation where the processor has it.
set(reverie_kernel_options -fno-math-errno -fno-trapping-math -ffp-contract=fast)
foreach(reverie_set IN ITEMS portable avx2 avx512)
  set(reverie_set_options ${reverie_kernel_options})
  if(CMAKE_SYSTEM_PROCESSOR MATCHES "^(x86_64|AMD64)$")
    if(reverie_set STREQUAL "avx2")
      list(APPEND reverie_set_options -mavx2 -mfma)
    elseif(reverie_set STREQUAL "avx512")
      list(APPEND reverie_set_options -mavx512f -mfma)
    endif()
  endif()
  # No precompiled header: it would bring functions of the standard library along, compiled for the
  # newer processor, which the linker could take for the whole program's.
  set_source_files_properties(${PROJECT_SOURCE_DIR}/src/reverie/nn/kernels_${reverie_set}.cc
                              PROPERTIES COMPILE_OPTIONS "${reverie_set_options}"
                                         SKIP_PRECOMPILE_HEADERS ON)
endforeach()

add_library(reverie STATIC ${reverie_sources})
add_library(reverie::reverie ALIAS reverie)
target_compile_features(reverie PUBLIC cxx_std_20)
target_include_directories(reverie PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                          $<INSTALL_INTERFACE:include>)
# fmt's headers alone: base/format.cc holds its implementation, so no shared libfmt is needed.
target_include_directories(
  reverie SYSTEM PUBLIC $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
target_include_directories(reverie SYSTEM PRIVATE ${REVERIE_ASIO_INCLUDE} ${REVERIE_NGHTTP2_INCLUDE}
                                                  ${REVERIE_PROTOZERO_INCLUDE})
target_compile_definitions(reverie PRIVATE ASIO_STANDALONE ASIO_NO_DEPRECATED)
# Came with a security update, within a version.
include(CheckLibraryExists)
check_library_exists("${REVERIE_NGHTTP2_LIBRARY}" nghttp2_option_set_stream_reset_rate_limit ""
                     REVERIE_HAS_NGHTTP2_RESET_LIMIT)
target_compile_definitions(
  reverie PRIVATE $<$<BOOL:${REVERIE_HAS_NGHTTP2_RESET_LIMIT}>:REVERIE_HAS_NGHTTP2_RESET_LIMIT>)
target_link_libraries(reverie PRIVATE OpenSSL::SSL OpenSSL::Crypto
                                      # What a target sets REVERIE_NGHTTP2 and REVERIE_ZLIB to, else as found.
                                      $<BUILD_INTERFACE:$<IF:$<BOOL:$<TARGET_PROPERTY:REVERIE_NGHTTP2>>,$<TARGET_PROPERTY:REVERIE_NGHTTP2>,${REVERIE_NGHTTP2_LIBRARY}>>
                                      $<BUILD_INTERFACE:$<IF:$<BOOL:$<TARGET_PROPERTY:REVERIE_ZLIB>>,$<TARGET_PROPERTY:REVERIE_ZLIB>,ZLIB::ZLIB>>
                                      $<INSTALL_INTERFACE:nghttp2> $<INSTALL_INTERFACE:ZLIB::ZLIB>)
if(REVERIE_UCX)
  find_path(REVERIE_UCX_INCLUDE ucp/api/ucp.h REQUIRED)
  find_library(REVERIE_UCP_LIBRARY ucp REQUIRED)
  find_library(REVERIE_UCS_LIBRARY ucs REQUIRED)
  target_include_directories(reverie SYSTEM PRIVATE ${REVERIE_UCX_INCLUDE})
  target_link_libraries(reverie PRIVATE $<BUILD_INTERFACE:${REVERIE_UCP_LIBRARY}>
                                        $<BUILD_INTERFACE:${REVERIE_UCS_LIBRARY}>
                                        $<INSTALL_INTERFACE:ucp> $<INSTALL_INTERFACE:ucs>)
endif()
target_link_libraries(reverie PUBLIC Threads::Threads ${CMAKE_DL_LIBS} PRIVATE
                      reverie_lz4 reverie_zstd reverie_snappy $<BUILD_INTERFACE:reverie_warnings>)
reverie_precompile(reverie)
reverie_unite(reverie)
