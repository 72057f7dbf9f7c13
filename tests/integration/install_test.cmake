# Installs the library into an empty folder, then builds and runs a project outside the tree
# against it. Needs BUILD_DIR, SOURCE_DIR, SCRATCH_DIR, GENERATOR and COMPILER.
set(prefix ${SCRATCH_DIR}/prefix)
file(REMOVE_RECURSE ${SCRATCH_DIR})

function(run)
  execute_process(COMMAND ${ARGV} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD_DIR} --prefix ${prefix})
# From a copy, so that no relative path finds back into the tree.
file(COPY ${SOURCE_DIR}/tests/integration/consumer DESTINATION ${SCRATCH_DIR})
run(${CMAKE_COMMAND} -S ${SCRATCH_DIR}/consumer -B ${SCRATCH_DIR}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER}
    -DCMAKE_PREFIX_PATH=${prefix} -DREVERIE_PREFIX=${prefix} "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
run(${CMAKE_COMMAND} --build ${SCRATCH_DIR}/build)
run(${SCRATCH_DIR}/build/consumer)
