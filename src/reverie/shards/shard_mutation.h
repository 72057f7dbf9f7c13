// ShardMutation: divides one batch of updates and deletions among shards, and adds up their
// answers; without lock, thread or clock.
//
// A key goes to the shard that is known to have it, else to all shards: those without it ignore
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "reverie/service/replay_service.h"
#include "reverie/shards/shard_directory.h"

namespace reverie {

// The part of one shard.
struct ShardMutationPart {
  std::vector<CorruptItem> corrupt;
  std::vector<ItemKey> deletes;
  std::vector<ItemKey> keys;
  std::vector<double> priorities;

  bool has_deletes() const { return !deletes.empty() || !corrupt.empty(); }
  bool empty() const { return !has_deletes() && keys.empty(); }
  // The result views this object.
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
  std::size_t update_count = 0;        // requested
  std::size_t delete_count = 0;        // corrupt items included
  std::vector<bool> has_deletes = {};  // by shard
  Status undone = {};                  // for a deletion that no shard could do

  // `results` by shard; empty for shards that were not asked.
  MutateResult sum_up(std::span<const std::optional<MutateResult>> results) const;
};

}  // namespace reverie
