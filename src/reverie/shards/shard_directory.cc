#include "reverie/shards/shard_directory.h"

namespace reverie {

void ShardDirectory::put(std::uint64_t key, ShardIndex shard) {
  if (sets_.empty()) sets_.resize(std::size_t{1} << set_bits_);
  Set& set = sets_[set_of(key)];
  std::size_t way = 0;
  while (way + 1 < kWays && (set.keys[way] != key || set.shards[way] == kNone)) ++way;
  for (; way > 0; --way) {
    set.keys[way] = set.keys[way - 1];
    set.shards[way] = set.shards[way - 1];
  }
  set.keys[0] = key;
  set.shards[0] = shard;
}

std::optional<ShardIndex> ShardDirectory::find(std::uint64_t key) const {
  if (sets_.empty()) return std::nullopt;
  const Set& set = sets_[set_of(key)];
  for (std::size_t way = 0; way < kWays; ++way) {
    if (set.keys[way] == key && set.shards[way] != kNone) return set.shards[way];
  }
  return std::nullopt;
}

void ShardDirectory::forget(std::uint64_t key) {
  if (sets_.empty()) return;
  Set& set = sets_[set_of(key)];
  for (std::size_t way = 0; way < kWays; ++way) {
    if (set.keys[way] == key) set.shards[way] = kNone;
  }
}

}  // namespace reverie
