// Tested in tests/python/env_plugin_test.py.
#include "reverie/env/native_plugin.h"

#include "reverie/base/plugin_library.h"

namespace reverie {

Status load_env_plugin(const std::string& path, NativeEnvAdder& registry) {
  REVERIE_ASSIGN_OR_RETURN(
      void* const address,
      open_plugin(path, {"reverie_env_plugin_abi", kEnvPluginAbi, "reverie_env_plugin_register",
                         "REVERIE_ENV_PLUGIN"}));
  const auto add = reinterpret_cast<void (*)(NativeEnvAdder*, Status*)>(address);
  Status status;
  add(&registry, &status);
  return status.with_context("plugin '" + path + "'");
}

}  // namespace reverie
