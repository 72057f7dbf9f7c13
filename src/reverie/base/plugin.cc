// Tested in tests/integration/plugin_test.cc.
#include "reverie/base/plugin.h"

#include <dlfcn.h>

namespace reverie {

Status load_plugin(const std::string& path, PluginHost& host) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return not_found("the plugin '{}' cannot be loaded: {}", path, dlerror());
  }
  const auto abi = reinterpret_cast<const char* (*)()>(dlsym(library, "reverie_plugin_abi"));
  const auto add =
      reinterpret_cast<void (*)(PluginHost*, Status*)>(dlsym(library, "reverie_plugin_register"));
  if (abi == nullptr || add == nullptr) {
    dlclose(library);
    return failed_precondition("'{}' is not a plugin: it defines no REVERIE_PLUGIN", path);
  }
  if (std::string_view(abi()) != kPluginAbi) {
    const std::string theirs = abi();
    dlclose(library);
    return failed_precondition("the plugin '{}' was built for '{}', this is '{}'; build it again",
                               path, theirs, kPluginAbi);
  }
  Status status;
  add(&host, &status);
  return status.with_context("plugin '" + path + "'");
}

}  // namespace reverie
