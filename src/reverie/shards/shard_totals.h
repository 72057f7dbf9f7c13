// Combines what several shards report about one table.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/record/table_info.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Adds the report of one part of a table to the whole: counts and sizes, max_size and max_bytes
// included, are sums, which saturate; other options are those of the first part.
void add_up(TableInfo& whole, const TableInfo& part);
// The tables of all shards, each once. Empty if no shard answered.
std::optional<std::vector<TableInfo>> add_up(
    std::vector<std::optional<Result<std::vector<TableInfo>>>>& infos);

// The requests of one kind that wait at any shard. A bound that holds at a shard without waiting
// requests is reported only if it holds at all shards.
BlockedReport::Side add_up(
    const std::vector<std::pair<const std::string*, const BlockedReport::Side*>>& parts);

// The priority and ticket of each key, from the shard that has it. UNAVAILABLE only if no shard
// answered: items of a lost shard count as missing.
LookupResult add_up(std::span<const ItemKey> keys,
                    const std::vector<std::optional<LookupResult>>& results);

// The first error that does not mean a lost shard; if there is none, one that does.
template <typename T, typename StatusOf>
Status worst(const std::vector<std::optional<T>>& results, StatusOf status_of) {
  Status gone;
  for (const std::optional<T>& result : results) {
    if (!result || status_of(*result).ok()) continue;
    if (status_of(*result).code() != StatusCode::kUnavailable) return status_of(*result);
    if (gone.ok()) gone = status_of(*result);
  }
  return gone;
}

}  // namespace reverie
