// What several shards say of one table, as the answer of the whole.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "reverie/record/table_info.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Adds what a part of the table says to the whole: counts and sizes are sums, which saturate, and
// what the table is made from is the first part's.
void add_up(TableInfo& whole, const TableInfo& part);
// The tables of all shards, each once. Empty where no shard answered.
std::optional<std::vector<TableInfo>> add_up(
    std::vector<std::optional<Result<std::vector<TableInfo>>>>& infos);

// The requests of one kind that wait at any shard. A bound that holds at a shard where no request
// waits is only told when it holds at all shards.
BlockedReport::Side add_up(
    const std::vector<std::pair<const std::string*, const BlockedReport::Side*>>& parts);

// The priority and ticket of each key, of the shard that has it. UNAVAILABLE only where no shard
// answered: items of a shard that is gone are not there.
LookupResult add_up(std::span<const ItemKey> keys,
                    const std::vector<std::optional<LookupResult>>& results);

// The first error that does not say that its shard is gone; then one that does.
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
