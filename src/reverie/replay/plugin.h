// Plugins: a user's selectors and extensions in a shared library of their own.
//
//     #include <reverie/replay/plugin.h>
//
//     REVERIE_PLUGIN(registry) {
//       return registry.add_selector("Oldest", make_oldest);
//     }
//
// Built against the same version of the library as the process that loads it; another is refused.
// See examples/cc/plugin_selector.cc and examples/cc/plugin_extension.cc.
#pragma once

#include <string>

#include "reverie/replay/registry.h"

namespace reverie {

// Changes whenever a plugin must be built again.
inline constexpr char kPluginAbi[] = "reverie-plugin-3";

// Loads the library at `path` and lets it add to `registry`. It stays loaded until the process
// ends. NOT_FOUND when it cannot be opened, FAILED_PRECONDITION when it is no plugin or one of
// another version, else what the plugin itself says.
Status load_plugin(const std::string& path, ComponentRegistry& registry);

}  // namespace reverie

// The body returns a Status.
#define REVERIE_PLUGIN(registry)                                                        \
  static ::reverie::Status reverie_plugin_body(::reverie::ComponentRegistry& registry); \
  extern "C" __attribute__((visibility("default"))) const char* reverie_plugin_abi() {  \
    return ::reverie::kPluginAbi;                                                       \
  }                                                                                     \
  extern "C" __attribute__((visibility("default"))) void reverie_plugin_register(       \
      ::reverie::ComponentRegistry* host, ::reverie::Status* status) {                  \
    *status = reverie_plugin_body(*host);                                               \
  }                                                                                     \
  static ::reverie::Status reverie_plugin_body(::reverie::ComponentRegistry& registry)
