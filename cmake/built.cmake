# A wheel of what another build folder has built: nothing is compiled, the rules of installation are
# that folder's. For tests of the wheel, which must not cost what the library costs to compile.
install(
  CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${REVERIE_BUILT}\" --component python --strip
                        --prefix \"\${CMAKE_INSTALL_PREFIX}\" COMMAND_ERROR_IS_FATAL ANY)"
  COMPONENT python)
