// What a plugin adds to tables: selectors and extensions. See base/plugin.h, and
// examples/cc/plugin_selector.cc and examples/cc/plugin_extension.cc.
#pragma once

#include <string>
#include <utility>

#include "reverie/base/plugin.h"
#include "reverie/replay/registry.h"

namespace reverie {

// ALREADY_EXISTS if the name is taken; FAILED_PRECONDITION if the program has no tables.
inline Status add_selector(PluginHost& host, std::string name, SelectorFactory factory) {
  REVERIE_ASSIGN_OR_RETURN(ComponentRegistry * registry, host.get<ComponentRegistry>());
  return registry->add_selector(std::move(name), std::move(factory));
}
inline Status add_extension(PluginHost& host, std::string name, ExtensionFactory factory) {
  REVERIE_ASSIGN_OR_RETURN(ComponentRegistry * registry, host.get<ComponentRegistry>());
  return registry->add_extension(std::move(name), std::move(factory));
}

}  // namespace reverie
