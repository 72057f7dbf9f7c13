# The cpp blocks of the documentation: all are compiled, and those that are programs run as tests.
find_program(REVERIE_PYTHON3 NAMES python3 REQUIRED)
file(GLOB_RECURSE reverie_pages CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/docs/*.md
     ${PROJECT_SOURCE_DIR}/*.md)
list(FILTER reverie_pages EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/(build|\\.venv)/")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${reverie_pages}
                                       ${PROJECT_SOURCE_DIR}/tools/pages.py)
set(reverie_blocks ${PROJECT_BINARY_DIR}/pages)
execute_process(COMMAND ${REVERIE_PYTHON3} ${PROJECT_SOURCE_DIR}/tools/pages.py ${reverie_blocks}
                COMMAND_ERROR_IS_FATAL ANY)

file(GLOB reverie_snippets ${reverie_blocks}/*_snippet.cc)
if(reverie_snippets)
  add_library(page_snippets OBJECT ${reverie_snippets})
  reverie_small_program(page_snippets)
endif()
file(GLOB reverie_programs ${reverie_blocks}/*_program.cc)
foreach(source IN LISTS reverie_programs)
  cmake_path(GET source STEM name)
  add_executable(${name} ${source})
  reverie_small_program(${name})
  add_test(NAME page.${name} COMMAND ${name} WORKING_DIRECTORY ${reverie_blocks})
endforeach()
