// What a plugin adds to pools: native environments. See base/plugin.h and
// examples/cc/plugin_env.cc.
#pragma once

#include <string>
#include <utility>

#include "reverie/base/plugin.h"
#include "reverie/env/native_registry.h"

namespace reverie {

// ALREADY_EXISTS if the name is taken; FAILED_PRECONDITION if the program has no pools.
inline Status add_environment(PluginHost& host, std::string id, NativeFactory factory) {
  REVERIE_ASSIGN_OR_RETURN(NativeEnvAdder * registry, host.get<NativeEnvAdder>());
  return registry->add(std::move(id), std::move(factory));
}

}  // namespace reverie
