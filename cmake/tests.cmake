# One test program for all rooms: tests lie beside what they test, and in tests/ where no single
# file owns them.
find_package(GTest REQUIRED)
include(GoogleTest)

file(GLOB_RECURSE reverie_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/reverie/*_test.cc
     ${PROJECT_SOURCE_DIR}/tests/*_test.cc)

add_executable(reverie_test ${reverie_tests})
target_include_directories(reverie_test PRIVATE ${PROJECT_SOURCE_DIR})  # "tests/conformance/x.h"
target_link_libraries(reverie_test PRIVATE reverie reverie_warnings GTest::gtest GTest::gtest_main)
gtest_discover_tests(reverie_test DISCOVERY_MODE PRE_TEST)
