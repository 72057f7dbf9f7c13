# lint: every fast check of the tree. tidy: clang-tidy over the library, minutes instead of seconds;
# without the tests, since the test framework's macros cost it ten seconds a file.
find_program(REVERIE_CLANG_TIDY NAMES run-clang-tidy-14 run-clang-tidy)

set(reverie_lint_python ${PROJECT_SOURCE_DIR}/.venv/bin/python)
add_custom_target(lint COMMAND ${reverie_lint_python} ${PROJECT_SOURCE_DIR}/tools/lint.py
                  WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL)
if(REVERIE_CLANG_TIDY)
  add_custom_target(
    tidy COMMAND ${REVERIE_CLANG_TIDY} -quiet -j 2 -p ${PROJECT_BINARY_DIR}
                 "${PROJECT_SOURCE_DIR}/src/reverie/.*(?<!_test)\\.cc$" VERBATIM WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
                 USES_TERMINAL)
endif()
