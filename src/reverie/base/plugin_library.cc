// Tested in tests/integration/plugin_test.cc.
#include "reverie/base/plugin_library.h"

#include <string_view>

#include <dlfcn.h>

namespace reverie {

Result<void*> open_plugin(const std::string& path, const PluginKind& kind) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return not_found("the plugin '{}' cannot be loaded: {}", path, dlerror());
  }
  const auto abi = reinterpret_cast<const char* (*)()>(dlsym(library, kind.abi_symbol));
  void* const add = dlsym(library, kind.register_symbol);
  if (abi == nullptr || add == nullptr) {
    dlclose(library);
    return failed_precondition("'{}' is not a plugin: it defines no {}", path, kind.macro);
  }
  if (std::string_view(abi()) != kind.abi) {
    const std::string theirs = abi();
    dlclose(library);
    return failed_precondition("the plugin '{}' was built for '{}', this is '{}'; build it again",
                               path, theirs, kind.abi);
  }
  return add;
}

}  // namespace reverie
