// Registry: makes selectors and extensions from their names and options.
//
//     registry.add_selector("Oldest", [](const Options& options) ->
//     Result<std::unique_ptr<Selector>> {
//       OptionReader reader(options);
//       ...
//     });
//
// A table is described by names and plain values, so it can be built from Python, from a file or
// from a message, and TableInfo can report what it was built from.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "reverie/base/mutex.h"
#include "reverie/base/options.h"
#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/replay/extension.h"
#include "reverie/selectors/selector.h"

namespace reverie {

using SelectorFactory = std::function<Result<std::unique_ptr<Selector>>(const Options&)>;
using ExtensionFactory = std::function<Result<std::unique_ptr<TableExtension>>(const Options&)>;

// What a plugin sees: virtual, so that a shared library calls code of the process that loaded it.
class ComponentRegistry {
 public:
  static constexpr std::string_view kPluginPart = "selectors or extensions";  // base/plugin.h

  // ALREADY_EXISTS if the name is taken.
  virtual Status add_selector(std::string name, SelectorFactory factory) = 0;
  virtual Status add_extension(std::string name, ExtensionFactory factory) = 0;

 protected:
  ~ComponentRegistry() = default;
};

// Thread-safe.
class Registry final : public ComponentRegistry {
 public:
  // Contains the included components.
  Registry();

  Status add_selector(std::string name, SelectorFactory factory) override;
  Status add_extension(std::string name, ExtensionFactory factory) override;

  // NOT_FOUND lists the registered names; else the factory's status, preceded by the name.
  Result<std::unique_ptr<Selector>> make_selector(const ComponentSpec& spec) const;
  Result<std::unique_ptr<TableExtension>> make_extension(const ComponentSpec& spec) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, SelectorFactory> selectors_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::string, ExtensionFactory> extensions_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
