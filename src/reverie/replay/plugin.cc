// Tested in tests/integration/plugin_test.cc.
#include "reverie/replay/plugin.h"

#include "reverie/base/plugin_library.h"

namespace reverie {

Status load_plugin(const std::string& path, ComponentRegistry& registry) {
  REVERIE_ASSIGN_OR_RETURN(void* const address,
                           open_plugin(path, {"reverie_plugin_abi", kPluginAbi,
                                              "reverie_plugin_register", "REVERIE_PLUGIN"}));
  const auto add = reinterpret_cast<void (*)(ComponentRegistry*, Status*)>(address);
  Status status;
  add(&registry, &status);
  return status.with_context("plugin '" + path + "'");
}

}  // namespace reverie
