# examples/cc: plugin_x.cc is a shared library to load, any other x.cc a program that the tests run.
set(reverie_examples_dir ${PROJECT_BINARY_DIR}/examples)

# A shared library that load_plugin() takes.
function(reverie_add_plugin name source)
  add_library(${name} MODULE ${source})
  reverie_small_program(${name})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY
                                                     ${reverie_examples_dir})
  if(REVERIE_BUILD_TESTS)
    add_dependencies(reverie_test ${name})
  endif()
endfunction()

file(GLOB reverie_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/cc/*.cc)
foreach(source IN LISTS reverie_examples)
  cmake_path(GET source STEM name)
  if(name MATCHES "^plugin_")
    reverie_add_plugin(${name} ${source})
  else()
    add_executable(example_${name} ${source})
    reverie_small_program(example_${name})
    set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name} RUNTIME_OUTPUT_DIRECTORY
                                                                         ${reverie_examples_dir})
    if(REVERIE_BUILD_TESTS)
      add_test(NAME example.${name} COMMAND example_${name}
               WORKING_DIRECTORY ${reverie_examples_dir})
    endif()
  endif()
endforeach()

# The tests load the plugins, and one that was built for another version.
if(REVERIE_BUILD_TESTS)
  reverie_add_plugin(stale_plugin ${PROJECT_SOURCE_DIR}/tests/integration/stale_plugin.cc)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/generated/tests/examples_dir.h
       CONTENT "#define REVERIE_EXAMPLES_DIR \"${reverie_examples_dir}\"\n")
endif()
