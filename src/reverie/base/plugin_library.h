// The half of a plugin that all kinds share: a shared library that names the version it was built
// for and has one function to call.
#pragma once

#include <string>

#include "reverie/base/status.h"

namespace reverie {

// What tells one kind of plugin from another.
struct PluginKind {
  const char* abi_symbol;       // a function that returns the version the library was built for
  const char* abi;              // the version that is wanted
  const char* register_symbol;  // the function to call
  const char* macro;            // what defines both, for the message
};

// The address of the library's register function. The library stays loaded until the process ends.
// NOT_FOUND when it cannot be opened, FAILED_PRECONDITION when it is no plugin of that kind, or one
// of another version.
Result<void*> open_plugin(const std::string& path, const PluginKind& kind);

}  // namespace reverie
