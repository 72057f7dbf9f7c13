# lint: every fast check of the tree. tidy: clang-tidy over the library, which takes minutes for
# sources that it has not yet found clean; without the tests, since the test framework's macros cost
# it ten seconds a file.
find_program(REVERIE_TIDY_PROGRAM NAMES clang-tidy-14 clang-tidy)

set(reverie_lint_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
add_custom_target(lint COMMAND ${reverie_lint_python} ${PROJECT_SOURCE_DIR}/tools/lint.py
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL)
if(REVERIE_TIDY_PROGRAM)
  add_custom_target(
    tidy COMMAND ${reverie_lint_python} ${PROJECT_SOURCE_DIR}/tools/clang_tidy.py ${PROJECT_BINARY_DIR}
                 --program ${REVERIE_TIDY_PROGRAM} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL)
endif()
