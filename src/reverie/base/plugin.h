// Plugins: a user's own components in a shared library that a program loads.
//
//     #include <reverie/env/native_plugin.h>
//     #include <reverie/replay/plugin.h>
//
//     REVERIE_PLUGIN(host) {
//       REVERIE_RETURN_IF_ERROR(add_selector(host, "Oldest", make_oldest));
//       return add_environment(host, "Coin-v0", native_factory<Coin>());
//     }
//
// One library may add components of several kinds. It must be built against the version of the
// library that the loading process has, else it is refused.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "reverie/base/status.h"

namespace reverie {

// Changes whenever a plugin must be built again.
inline constexpr char kPluginAbi[] = "reverie-plugin-4";

// The registries that a plugin may add to, at most one of each kind. They outlive the host.
//
// A kind of registry is a class with a constant kPluginPart, its name, which messages use too.
class PluginHost {
 public:
  template <typename T>
  void offer(T& registry) {
    parts_[std::string(T::kPluginPart)] = &registry;
  }

  // FAILED_PRECONDITION if the program that loads the plugin takes no components of that kind.
  template <typename T>
  Result<T*> get() const {
    const auto found = parts_.find(T::kPluginPart);
    if (found == parts_.end()) {
      return failed_precondition("it adds {}, which this program does not take from plugins",
                                 T::kPluginPart);
    }
    return static_cast<T*>(found->second);
  }

 private:
  std::map<std::string, void*, std::less<>> parts_;
};

// Loads the library at `path` and lets it add to what `host` offers. It stays loaded until the
// process ends. NOT_FOUND when it cannot be opened, FAILED_PRECONDITION when it is no plugin or was
// built for another version, else the status that the plugin returns.
Status load_plugin(const std::string& path, PluginHost& host);

}  // namespace reverie

// The body returns a Status.
#define REVERIE_PLUGIN(host)                                                           \
  static ::reverie::Status reverie_plugin_body(::reverie::PluginHost& host);           \
  extern "C" __attribute__((visibility("default"))) const char* reverie_plugin_abi() { \
    return ::reverie::kPluginAbi;                                                      \
  }                                                                                    \
  extern "C" __attribute__((visibility("default"))) void reverie_plugin_register(      \
      ::reverie::PluginHost* given, ::reverie::Status* status) {                       \
    *status = reverie_plugin_body(*given);                                             \
  }                                                                                    \
  static ::reverie::Status reverie_plugin_body(::reverie::PluginHost& host)
