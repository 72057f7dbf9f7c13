// Plugins: a user's native environments in a shared library of their own.
//
//     #include <reverie/env/native_plugin.h>
//
//     REVERIE_ENV_PLUGIN(registry) {
//       return registry.add("Coin-v0", reverie::native_factory<Coin>());
//     }
//
// Built against the same version of the library as the process that loads it; another is refused.
// See examples/cc/plugin_env.cc.
#pragma once

#include <string>

#include "reverie/env/native_registry.h"

namespace reverie {

// Changes whenever a plugin must be built again.
inline constexpr char kEnvPluginAbi[] = "reverie-env-plugin-2";

// Loads the library at `path` and lets it add to `registry`. It stays loaded until the process
// ends. NOT_FOUND when it cannot be opened, FAILED_PRECONDITION when it is no plugin or one of
// another version, else what the plugin itself says.
Status load_env_plugin(const std::string& path, NativeEnvAdder& registry);

}  // namespace reverie

// The body returns a Status.
#define REVERIE_ENV_PLUGIN(registry)                                                       \
  static ::reverie::Status reverie_env_plugin_body(::reverie::NativeEnvAdder& registry);   \
  extern "C" __attribute__((visibility("default"))) const char* reverie_env_plugin_abi() { \
    return ::reverie::kEnvPluginAbi;                                                       \
  }                                                                                        \
  extern "C" __attribute__((visibility("default"))) void reverie_env_plugin_register(      \
      ::reverie::NativeEnvAdder* host, ::reverie::Status* status) {                        \
    *status = reverie_env_plugin_body(*host);                                              \
  }                                                                                        \
  static ::reverie::Status reverie_env_plugin_body(::reverie::NativeEnvAdder& registry)
