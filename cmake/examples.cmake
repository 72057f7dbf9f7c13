# examples/cc: x_plugin.cc is a shared library to load, any other x.cc a program that the tests run.
file(GLOB reverie_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/cc/*.cc)
foreach(source IN LISTS reverie_examples)
  cmake_path(GET source STEM name)
  if(name MATCHES "_plugin$")
    add_library(${name} MODULE ${source})
    set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY
                                                       ${PROJECT_BINARY_DIR}/examples)
  else()
    add_executable(example_${name} ${source})
    set_target_properties(
      example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY
                                                     ${PROJECT_BINARY_DIR}/examples)
    target_link_libraries(example_${name} PRIVATE ${CMAKE_DL_LIBS})
    if(REVERIE_BUILD_TESTS)
      add_test(NAME example.${name} COMMAND example_${name}
               WORKING_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    endif()
    set(name example_${name})
  endif()
  target_link_libraries(${name} PRIVATE reverie::reverie reverie_warnings)
endforeach()
