#include "reverie/replay/plugin.h"

#include <string_view>

#include <dlfcn.h>

namespace reverie {
namespace {

template <typename Function>
Function* symbol(void* library, const char* name) {
  return reinterpret_cast<Function*>(dlsym(library, name));
}

}  // namespace

Status load_plugin(const std::string& path, ComponentRegistry& registry) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return not_found("the plugin '{}' cannot be loaded: {}", path, dlerror());
  }
  const auto abi = symbol<const char*()>(library, "reverie_plugin_abi");
  const auto add = symbol<void(ComponentRegistry*, Status*)>(library, "reverie_plugin_register");
  if (abi == nullptr || add == nullptr) {
    dlclose(library);
    return failed_precondition("'{}' is no plugin: it defines no REVERIE_PLUGIN", path);
  }
  if (std::string_view(abi()) != kPluginAbi) {
    const std::string theirs = abi();
    dlclose(library);
    return failed_precondition("the plugin '{}' was built for '{}', this is '{}'; build it again",
                               path, theirs, kPluginAbi);
  }
  Status status;
  add(&registry, &status);
  return status.with_context("plugin '" + path + "'");
}

}  // namespace reverie
