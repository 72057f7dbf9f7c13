// Registry: makes selectors and extensions from their names and options.
//
//     registry.add_selector("Oldest", [](const Options& options) ->
//     Result<std::unique_ptr<Selector>> {
//       OptionReader reader(options);
//       ...
//     });
//
// A table is described by names and plain values, so it can be built from Python, from a file or
// from a wire alike, and TableInfo can say what it was built from.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/replay/extension.h"
#include "reverie/replay/selector.h"

namespace reverie {

using SelectorFactory = std::function<Result<std::unique_ptr<Selector>>(const Options&)>;
using ExtensionFactory = std::function<Result<std::unique_ptr<TableExtension>>(const Options&)>;

// What a plugin sees: virtual, so that a shared library calls into the process that loaded it.
class ComponentRegistry {
 public:
  // ALREADY_EXISTS for a name that is taken.
  virtual Status add_selector(std::string name, SelectorFactory factory) = 0;
  virtual Status add_extension(std::string name, ExtensionFactory factory) = 0;

 protected:
  ~ComponentRegistry() = default;
};

// Thread-safe.
class Registry final : public ComponentRegistry {
 public:
  // Holds the components that ship.
  Registry();

  Status add_selector(std::string name, SelectorFactory factory) override;
  Status add_extension(std::string name, ExtensionFactory factory) override;

  // NOT_FOUND, listing the names there are; else what the factory says, with the name before it.
  Result<std::unique_ptr<Selector>> make_selector(const ComponentSpec& spec) const;
  Result<std::unique_ptr<TableExtension>> make_extension(const ComponentSpec& spec) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, SelectorFactory> selectors_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::string, ExtensionFactory> extensions_ REVERIE_GUARDED_BY(mutex_);
};

// Reads options one by one, then finish() refuses what was not asked for.
class OptionReader {
 public:
  explicit OptionReader(const Options& options) : options_(options) {}

  // The value, or `fallback` when absent. An integer will do where a number is wanted; another
  // type is remembered as the error that finish() returns.
  double number(const std::string& name, double fallback);
  std::int64_t integer(const std::string& name, std::int64_t fallback);
  std::optional<std::uint64_t> seed(const std::string& name = "seed");

  Status finish();

 private:
  const OptionValue* find(const std::string& name);

  const Options& options_;
  std::set<std::string> asked_;
  Status status_;
};

}  // namespace reverie
