#include "reverie/shards/shard_mutation.h"

#include <algorithm>

namespace reverie {

std::vector<ShardMutationPart> divide_mutation(const MutateRequest& request,
                                               const ShardDirectory& directory,
                                               std::size_t shard_count) {
  std::vector<ShardMutationPart> parts(shard_count);
  const auto put = [&](ItemKey key, auto add) {
    if (const std::optional<ShardIndex> shard = directory.find(key)) return add(parts[*shard]);
    for (ShardMutationPart& part : parts) add(part);
  };
  const auto put_updates = [&](std::span<const ItemKey> keys, std::span<const double> priorities) {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      put(keys[i], [&, i](ShardMutationPart& part) {
        part.keys.push_back(keys[i]);
        part.priorities.push_back(priorities[i]);
      });
    }
  };
  for (const CorruptItem& item : request.corrupt) {
    put(item.key, [&item](ShardMutationPart& part) { part.corrupt.push_back(item); });
  }
  for (const ItemKey key : request.deletes) {
    put(key, [key](ShardMutationPart& part) { part.deletes.push_back(key); });
  }
  put_updates(request.tickets, request.ticket_priorities);
  put_updates(request.keys, request.key_priorities);
  return parts;
}

MutateResult ShardMutationTotal::sum_up(
    std::span<const std::optional<MutateResult>> results) const {
  MutateResult whole;
  for (const auto& result : results) {
    if (!result) continue;
    whole.updated += result->updated;
    whole.deleted += result->deleted;
  }
  // A service that cannot know the number counts all requested updates.
  whole.updated = std::min(whole.updated, update_count);
  whole.deleted = std::min(whole.deleted, delete_count);
  whole.missing = update_count - whole.updated + delete_count - whole.deleted;
  whole.status = undone;
  for (std::size_t s = 0; s < results.size(); ++s) {
    if (!results[s] || results[s]->status.ok()) continue;
    // Items of a lost shard are lost, and so are their new priorities.
    const bool is_gone = results[s]->status.code() == StatusCode::kUnavailable;
    if (!is_gone || (whole.status.ok() && has_deletes[s])) whole.status = results[s]->status;
    if (!is_gone) break;
  }
  return whole;
}

}  // namespace reverie
