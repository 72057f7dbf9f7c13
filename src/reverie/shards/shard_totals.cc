#include "reverie/shards/shard_totals.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reverie/base/format.h"

namespace reverie {

void add_up(TableInfo& whole, const TableInfo& part) {
  const auto add = [](std::int64_t& to, std::int64_t from) {
    if (__builtin_add_overflow(to, from, &to)) to = std::numeric_limits<std::int64_t>::max();
  };
  add(whole.options.max_size, part.options.max_size);
  if (whole.options.max_bytes && part.options.max_bytes) {
    add(*whole.options.max_bytes, *part.options.max_bytes);
  }
  add(whole.current_size, part.current_size);
  add(whole.size_bytes, part.size_bytes);
  add(whole.num_episodes, part.num_episodes);
  add(whole.num_deleted_episodes, part.num_deleted_episodes);
  add(whole.num_unique_samples, part.num_unique_samples);
  add(whole.inserts, part.inserts);
  add(whole.samples, part.samples);
  add(whole.deletes, part.deletes);
  whole.max_priority = std::max(whole.max_priority, part.max_priority);
  add(whole.pending_inserts, part.pending_inserts);
  add(whole.pending_samples, part.pending_samples);
  whole.insert_wait_s += part.insert_wait_s;
  whole.sample_wait_s += part.sample_wait_s;
  add(whole.missing_updates, part.missing_updates);
  add(whole.corrupt_items, part.corrupt_items);
}

std::optional<std::vector<TableInfo>> add_up(
    std::vector<std::optional<Result<std::vector<TableInfo>>>>& infos) {
  std::optional<std::vector<TableInfo>> whole;
  for (auto& result : infos) {
    if (!result || !result->ok()) continue;
    if (!whole) whole.emplace();
    for (TableInfo& part : result->value()) {
      const auto same = [&part](const TableInfo& info) {
        return info.options.name == part.options.name;
      };
      const auto found = std::ranges::find_if(*whole, same);
      if (found == whole->end()) {
        whole->push_back(std::move(part));
      } else {
        add_up(*found, part);
      }
    }
  }
  return whole;
}

BlockedReport::Side add_up(
    const std::vector<std::pair<const std::string*, const BlockedReport::Side*>>& parts) {
  BlockedReport::Side whole;
  const bool is_everywhere =
      std::ranges::none_of(parts, [](const auto& part) { return part.second->reason.empty(); });
  for (const auto& [shard, part] : parts) {
    whole.waiting += part->waiting;
    if (part->longest_wait_s > whole.longest_wait_s) {
      whole.longest_wait_s = part->longest_wait_s;
      whole.longest_request = part->longest_request;
    }
    if (part->reason.empty() || (part->waiting == 0 && !is_everywhere)) continue;
    whole.reason += format("{}{}: {}", whole.reason.empty() ? "" : "; ", *shard, part->reason);
  }
  return whole;
}

LookupResult add_up(std::span<const ItemKey> keys,
                    const std::vector<std::optional<LookupResult>>& results) {
  LookupResult whole;
  whole.status = worst(results, [](const LookupResult& result) { return result.status; });
  bool is_answered = false;
  whole.priorities.assign(keys.size(), std::numeric_limits<double>::quiet_NaN());
  whole.tickets.assign(keys.size(), 0);
  for (const auto& result : results) {
    if (!result || !result->status.ok()) continue;
    is_answered = true;
    for (std::size_t i = 0; i < keys.size(); ++i) {
      if (std::isnan(result->priorities[i])) continue;
      whole.priorities[i] = result->priorities[i];
      whole.tickets[i] = keys[i];
    }
  }
  if (is_answered && whole.status.code() == StatusCode::kUnavailable) whole.status = {};
  if (!whole.status.ok()) whole = {whole.status, {}, {}};
  return whole;
}

}  // namespace reverie
