# The Python extension reverie._reverie, with our library inside and no symbol but its entry visible.
#
# In the source tree it is written beside the package (python/reverie), so that a checkout on the
# module path is importable; in a wheel it is installed there.
if(NOT SKBUILD AND NOT Python_EXECUTABLE AND EXISTS ${PROJECT_SOURCE_DIR}/.venv/bin/python)
  set(Python_EXECUTABLE ${PROJECT_SOURCE_DIR}/.venv/bin/python)
endif()
# What a wheel holds. Other builds install it when they are asked for this component alone.
macro(reverie_install_python)
  if(SKBUILD)
    install(${ARGV} COMPONENT python)
  else()
    install(${ARGV} COMPONENT python EXCLUDE_FROM_ALL)
  endif()
endmacro()

find_package(Python 3.10 REQUIRED COMPONENTS Interpreter Development.Module NumPy)
if(NOT SKBUILD)
  execute_process(
    COMMAND ${Python_EXECUTABLE} -m nanobind --cmake_dir
    OUTPUT_STRIP_TRAILING_WHITESPACE
    OUTPUT_VARIABLE nanobind_ROOT COMMAND_ERROR_IS_FATAL ANY)
endif()
# One extension for every CPython from 3.12 on: a wheel's (wheel.py-api of pyproject.toml), or if asked for.
set(reverie_stable_abi)
if(SKBUILD_SABI_VERSION OR REVERIE_STABLE_ABI)
  if(Python_VERSION VERSION_LESS 3.12)
    message(FATAL_ERROR "REVERIE_STABLE_ABI needs CPython 3.12 or newer, and Python_EXECUTABLE is "
                        "${Python_EXECUTABLE}, ${Python_VERSION}")
  endif()
  set(reverie_stable_abi STABLE_ABI)
  # nanobind wants to see this target, which CMake has from 3.26 on; what is linked is the same.
  if(NOT TARGET Python::SABIModule)
    add_library(Python::SABIModule INTERFACE IMPORTED)
    target_link_libraries(Python::SABIModule INTERFACE Python::Module)
  endif()
endif()
find_package(nanobind 3.1 CONFIG REQUIRED)

file(GLOB_RECURSE reverie_bindings CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/python/bindings/*.cc)
nanobind_add_module(_reverie ${reverie_stable_abi} NB_STATIC NOMINSIZE NB_SUPPRESS_WARNINGS ${reverie_bindings})
target_include_directories(_reverie PRIVATE ${PROJECT_SOURCE_DIR})  # "python/bindings/convert.h"
target_link_libraries(_reverie PRIVATE reverie reverie_warnings Python::NumPy)
# Templates of the standard library would be visible otherwise, and could be taken for another
# library's copy of them.
target_link_options(_reverie PRIVATE
                    -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/python_symbols.map)
# Frames of the module stop CPython's unwinding of threads: bindings/gil.cc says why.
target_link_options(_reverie PRIVATE -Wl,--wrap=__gxx_personality_v0)
set_property(TARGET _reverie APPEND PROPERTY LINK_DEPENDS
                                             ${PROJECT_SOURCE_DIR}/cmake/python_symbols.map)
# A wheel needs no library but the system's, so nghttp2 and zlib go in as archives. Debian's nghttp2 is
# not made for shared libraries; the one thing in the way is its use of stderr, in a function for
# debugging, which bindings/http2_stderr.cc takes over.
find_library(REVERIE_NGHTTP2_ARCHIVE libnghttp2.a)
find_library(REVERIE_ZLIB_ARCHIVE libz.a)
if(REVERIE_NGHTTP2_ARCHIVE AND REVERIE_ZLIB_ARCHIVE AND CMAKE_OBJCOPY)
  set(reverie_nghttp2 ${PROJECT_BINARY_DIR}/libnghttp2_hidden.a)
  add_custom_command(
    OUTPUT ${reverie_nghttp2}
    COMMAND ${CMAKE_OBJCOPY} --redefine-sym stderr=reverie_nghttp2_stderr ${REVERIE_NGHTTP2_ARCHIVE}
            ${reverie_nghttp2}
    DEPENDS ${REVERIE_NGHTTP2_ARCHIVE})
  add_custom_target(reverie_nghttp2_hidden DEPENDS ${reverie_nghttp2})
  add_dependencies(_reverie reverie_nghttp2_hidden)
  set_target_properties(_reverie PROPERTIES REVERIE_NGHTTP2 ${reverie_nghttp2} REVERIE_ZLIB
                                                                                ${REVERIE_ZLIB_ARCHIVE})
endif()
target_compile_definitions(_reverie PRIVATE REVERIE_VERSION="${PROJECT_VERSION}")
# A source that lacks the header for a type compiles, and raises std::bad_cast where it is converted.
reverie_precompile(_reverie
  <nanobind/nanobind.h> <nanobind/stl/map.h> <nanobind/stl/optional.h> <nanobind/stl/pair.h>
  <nanobind/stl/shared_ptr.h> <nanobind/stl/string.h> <nanobind/stl/tuple.h>
  <nanobind/stl/unique_ptr.h> <nanobind/stl/variant.h> <nanobind/stl/vector.h>)
reverie_unite(_reverie)

reverie_install_python(TARGETS _reverie LIBRARY DESTINATION reverie)

# A wheel's build leaves the checkout alone.
if(SKBUILD)
  reverie_add_box2d_plugin(${PROJECT_BINARY_DIR})
else()
  set_target_properties(_reverie PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${REVERIE_PYTHON_OUTPUT})
  reverie_add_box2d_plugin(${REVERIE_PYTHON_OUTPUT})
endif()
