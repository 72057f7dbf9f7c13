// ShardMutation: one batch of updates and deletions, divided among shards, and their answers summed
// up; without lock, thread or clock.
//
// A key goes to the shard that is known to have it, else to all: those that do not have it ignore
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_directory.h"

namespace reverie {

// What one shard is asked for.
struct ShardMutationPart {
  std::vector<CorruptItem> corrupt;
  std::vector<ItemKey> deletes;
  std::vector<ItemKey> keys;
  std::vector<double> priorities;

  bool has_deletes() const { return !deletes.empty() || !corrupt.empty(); }
  bool empty() const { return !has_deletes() && keys.empty(); }
  // Views this.
  MutateRequest request(std::string_view table) const {
    return {.table = table,
            .deletes = deletes,
            .keys = keys,
            .key_priorities = priorities,
            .corrupt = corrupt};
  }
};

// Requires a checked request. Tickets are keys.
std::vector<ShardMutationPart> divide_mutation(const MutateRequest& request,
                                               const ShardDirectory& directory,
                                               std::size_t shard_count);

// The result of the whole request.
struct ShardMutationTotal {
  std::size_t update_count = 0;        // asked for
  std::size_t delete_count = 0;        // corrupt items too
  std::vector<bool> has_deletes = {};  // by shard
  Status undone = {};                  // a deletion that no shard is there for

  // `results` by shard, empty for those that were not asked.
  MutateResult sum_up(std::span<const std::optional<MutateResult>> results) const;
};

}  // namespace reverie
