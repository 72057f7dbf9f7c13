# One test program for all rooms: tests lie beside what they test, and in tests/ where no single
# file owns them.
find_package(GTest REQUIRED)
include(GoogleTest)

file(GLOB_RECURSE reverie_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/reverie/*_test.cc
     ${PROJECT_SOURCE_DIR}/tests/*_test.cc)
if(NOT REVERIE_BUILD_EXAMPLES)  # its plugins are among them
  list(FILTER reverie_tests EXCLUDE REGEX "/plugin_test\\.cc$")
endif()

if(NOT REVERIE_UCX)
  list(FILTER reverie_tests EXCLUDE REGEX "/ucx_[a-z_]*test\\.cc$")
endif()

if(NOT TARGET reverie_box2d)
  list(FILTER reverie_tests EXCLUDE REGEX "/env_suite_test\\.cc$")
endif()

# Those of some rooms alone, or of tests/ (conformance/transport): a program of the library and these.
if(REVERIE_TEST_ROOMS)
  list(JOIN REVERIE_TEST_ROOMS "|" reverie_rooms)
  list(FILTER reverie_tests INCLUDE REGEX "/(src/reverie/(${reverie_rooms})/|tests/(${reverie_rooms})_)")
endif()

# libprotobuf, from proto/, is the oracle of the codecs that are our own; the library does without it.
if(NOT REVERIE_TEST_ROOMS)
  find_package(Protobuf REQUIRED)
  set(reverie_proto ${PROJECT_BINARY_DIR}/proto)
  file(MAKE_DIRECTORY ${reverie_proto})
  add_custom_command(
    OUTPUT ${reverie_proto}/reverb.pb.cc ${reverie_proto}/reverb.pb.h
    COMMAND protobuf::protoc --cpp_out=${reverie_proto} --proto_path=${PROJECT_SOURCE_DIR}/proto
            ${PROJECT_SOURCE_DIR}/proto/reverb.proto
    DEPENDS ${PROJECT_SOURCE_DIR}/proto/reverb.proto
    VERBATIM)
  add_library(reverie_proto STATIC ${reverie_proto}/reverb.pb.cc)
  target_include_directories(reverie_proto SYSTEM PUBLIC ${reverie_proto})
  target_link_libraries(reverie_proto PUBLIC protobuf::libprotobuf)
endif()

add_executable(reverie_test ${reverie_tests})
target_include_directories(reverie_test PRIVATE ${PROJECT_SOURCE_DIR})  # "tests/conformance/x.h"
target_link_libraries(reverie_test PRIVATE reverie reverie_warnings GTest::gtest GTest::gtest_main
                                           $<TARGET_NAME_IF_EXISTS:reverie_proto>
                                           $<TARGET_NAME_IF_EXISTS:reverie_box2d>)
# Where the data of tests lies. A header, so that only what reads it is compiled again in another checkout.
file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/tests/tests_dir.h
     CONTENT "#define REVERIE_TESTS_DIR \"${PROJECT_SOURCE_DIR}/tests\"\n")
target_include_directories(reverie_test PRIVATE ${PROJECT_BINARY_DIR}/generated)
target_include_directories(reverie_test SYSTEM PRIVATE ${REVERIE_PROTOZERO_INCLUDE})
# Half the time of a clean build goes into tests: they are optimised less than what they test.
target_compile_options(reverie_test PRIVATE $<$<CONFIG:Release>:-O1>)
reverie_precompile(reverie_test <gtest/gtest.h>)
reverie_unite(reverie_test)
# Parameters by name or number: their values, printed as bytes, make names of hundreds of letters.
gtest_discover_tests(reverie_test NO_PRETTY_VALUES DISCOVERY_MODE PRE_TEST)

if(REVERIE_TEST_ROOMS)
  return()
endif()

# Each tests/peers/x_peer.cc is a program that tests in Python talk to.
file(GLOB reverie_peers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/peers/*_peer.cc)
foreach(source IN LISTS reverie_peers)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/peers)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  reverie_small_program(${name})
endforeach()

# The installed library serves a project outside the tree. (A sanitizer would have to be in both.)
if(NOT REVERIE_SANITIZE)
  add_test(
    NAME install
    COMMAND
      ${CMAKE_COMMAND} -D BUILD_DIR=${PROJECT_BINARY_DIR} -D SOURCE_DIR=${PROJECT_SOURCE_DIR} -D
      SCRATCH_DIR=${PROJECT_BINARY_DIR}/install_test -D GENERATOR=${CMAKE_GENERATOR} -D
      COMPILER=${CMAKE_CXX_COMPILER} -D "LAUNCHER=$<$<BOOL:${REVERIE_CCACHE}>:${REVERIE_CCACHE}>" -P
      ${PROJECT_SOURCE_DIR}/tests/integration/install_test.cmake)
endif()
