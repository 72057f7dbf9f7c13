#include "reverie/env/native_registry.h"

#include <algorithm>
#include <cctype>
#include <utility>

namespace reverie {
namespace {

// The Levenshtein distance of two names, ignoring case.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return std::tolower(static_cast<unsigned char>(c)); };
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t changed = diagonal + (lower(a[i - 1]) == lower(b[j - 1]) ? 0 : 1);
      diagonal = std::exchange(row[j], std::min({row[j] + 1, row[j - 1] + 1, changed}));
    }
  }
  return row.back();
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

// The names whose distance is at most a third of their length, the nearest first; all names if
// there is none.
std::string suggestion(std::string_view id, const std::vector<std::string>& ids) {
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& candidate : ids) {
    const std::size_t distance = edit_distance(id, candidate);
    if (3 * distance <= std::max(id.size(), candidate.size()))
      near.emplace_back(distance, candidate);
  }
  if (near.empty()) return "there are: " + joined(ids);
  std::sort(near.begin(), near.end());
  std::vector<std::string> names;
  names.reserve(near.size());
  for (auto& entry : near) names.push_back(std::move(entry.second));
  return "near it are: " + joined(names);
}

}  // namespace

Status NativeRegistry::add(std::string id, NativeFactory factory) {
  MutexLock lock(mutex_);
  if (!factories_.try_emplace(id, std::move(factory)).second) {
    return already_exists("an environment named '{}' is registered already; choose another name",
                          id);
  }
  return {};
}

std::vector<std::string> NativeRegistry::ids() const {
  MutexLock lock(mutex_);
  std::vector<std::string> ids;
  for (const auto& entry : factories_) ids.push_back(entry.first);
  return ids;
}

Result<std::unique_ptr<NativeBatch>> NativeRegistry::make(std::string_view id,
                                                          const Options& options,
                                                          std::size_t count) const {
  NativeFactory factory;
  {
    MutexLock lock(mutex_);
    const auto found = factories_.find(id);
    if (found != factories_.end()) factory = found->second;
  }
  if (!factory) {
    return not_found("no native environment is named '{}'; {}", id, suggestion(id, ids()));
  }
  auto batch = factory(id, options, count);
  if (!batch.ok()) return batch.status().with_context(id);
  for (std::size_t row = 0; row < count; ++row) (*batch)->seed(row, row);
  return batch;
}

}  // namespace reverie
