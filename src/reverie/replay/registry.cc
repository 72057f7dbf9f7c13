// Tested in tests/integration/plugin_test.cc.
#include "reverie/replay/registry.h"

#include <utility>

#include "reverie/replay/extensions/priority_diffusion.h"
#include "reverie/replay/extensions/statistics.h"
#include "reverie/selectors/heap_selector.h"
#include "reverie/selectors/list_selector.h"
#include "reverie/selectors/prioritized_selector.h"
#include "reverie/selectors/uniform_selector.h"

namespace reverie {
namespace {

using SelectorResult = Result<std::unique_ptr<Selector>>;
using ExtensionResult = Result<std::unique_ptr<TableExtension>>;

template <typename T>
SelectorFactory plain_selector() {
  return [](const Options& options) -> SelectorResult {
    REVERIE_RETURN_IF_ERROR(OptionReader(options).finish());
    return std::unique_ptr<Selector>(std::make_unique<T>());
  };
}

SelectorResult make_uniform(const Options& options) {
  OptionReader reader(options);
  const auto seed = reader.seed();
  REVERIE_RETURN_IF_ERROR(reader.finish());
  return std::unique_ptr<Selector>(std::make_unique<Uniform>(seed));
}

SelectorResult make_prioritized(const Options& options) {
  OptionReader reader(options);
  const double exponent = reader.number("priority_exponent", 1.0);
  const auto seed = reader.seed();
  REVERIE_RETURN_IF_ERROR(reader.finish());
  REVERIE_ASSIGN_OR_RETURN(auto selector, Prioritized::make(exponent, seed));
  return std::unique_ptr<Selector>(std::move(selector));
}

ExtensionResult make_statistics(const Options& options) {
  REVERIE_RETURN_IF_ERROR(OptionReader(options).finish());
  return std::unique_ptr<TableExtension>(std::make_unique<Statistics>());
}

ExtensionResult make_priority_diffusion(const Options& options) {
  OptionReader reader(options);
  const std::int64_t radius = reader.integer("radius", 1);
  const double decay = reader.number("decay", 0.5);
  REVERIE_RETURN_IF_ERROR(reader.finish());
  REVERIE_ASSIGN_OR_RETURN(auto extension, PriorityDiffusion::make(radius, decay));
  return std::unique_ptr<TableExtension>(std::move(extension));
}

template <typename Map>
std::string names_of(const Map& map) {
  std::string names;
  for (const auto& entry : map) names += (names.empty() ? "" : ", ") + entry.first;
  return names;
}

}  // namespace

Registry::Registry() {
  selectors_ = {
      {"Fifo", plain_selector<Fifo>()},
      {"Lifo", plain_selector<Lifo>()},
      {"MinHeap", plain_selector<MinHeap>()},
      {"MaxHeap", plain_selector<MaxHeap>()},
      {"Uniform", make_uniform},
      {"Prioritized", make_prioritized},
  };
  extensions_ = {
      {"Statistics", make_statistics},
      {"PriorityDiffusion", make_priority_diffusion},
  };
}

Status Registry::add_selector(std::string name, SelectorFactory factory) {
  MutexLock lock(mutex_);
  if (!selectors_.try_emplace(name, std::move(factory)).second) {
    return already_exists("a selector named '{}' is registered already; choose another name", name);
  }
  return {};
}

Status Registry::add_extension(std::string name, ExtensionFactory factory) {
  MutexLock lock(mutex_);
  if (!extensions_.try_emplace(name, std::move(factory)).second) {
    return already_exists("an extension named '{}' is registered already; choose another name",
                          name);
  }
  return {};
}

Result<std::unique_ptr<Selector>> Registry::make_selector(const ComponentSpec& spec) const {
  SelectorFactory factory;
  {
    MutexLock lock(mutex_);
    const auto found = selectors_.find(spec.name);
    if (found == selectors_.end()) {
      return not_found("no selector is named '{}'; there are: {}", spec.name, names_of(selectors_));
    }
    factory = found->second;
  }
  auto selector = factory(spec.options);
  if (!selector.ok()) return selector.status().with_context("selector " + spec.name);
  return selector;
}

Result<std::unique_ptr<TableExtension>> Registry::make_extension(const ComponentSpec& spec) const {
  ExtensionFactory factory;
  {
    MutexLock lock(mutex_);
    const auto found = extensions_.find(spec.name);
    if (found == extensions_.end()) {
      return not_found("no extension is named '{}'; there are: {}", spec.name,
                       names_of(extensions_));
    }
    factory = found->second;
  }
  auto extension = factory(spec.options);
  if (!extension.ok()) return extension.status().with_context("extension " + spec.name);
  return extension;
}

}  // namespace reverie
