// ShardPlacement: which shard each item goes to, and which shards may have it by mistake; without
// lock, thread or clock.
//
// An episode's items go to one shard, so that they share its chunks. Each new episode takes the
// next shard that is up, and so does each item that belongs to no episode.
//
// An item whose insert was not confirmed when its shard was lost goes to another. The first may
// have it as well: it is a *stray* of that shard, to be deleted there before that shard is used
// again. Only items whose insert was pending when the shard was lost can be strays.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/record/item.h"
#include "reverie/shards/shard_directory.h"

namespace reverie {

// Not thread-safe.
class ShardPlacement {
 public:
  using IsUp = std::function<bool(ShardIndex)>;
  // Keys by table.
  using Strays = std::map<std::string, std::vector<ItemKey>>;

  ShardPlacement(std::size_t shard_count, IsUp is_up);

  // The shard for an item; none if all are down. An insert is pending there until it is
  // settled.
  std::optional<ShardIndex> place(std::optional<std::uint64_t> episode);
  void settle(ShardIndex shard) { --under_way_[shard]; }
  // The same for a lost shard: `keys` go to other shards, but this one may have them too.
  void settle_lost(ShardIndex shard, std::string_view table, std::span<const ItemKey> keys);

  // Whether all inserts of a shard are settled: until then not all of its strays are known.
  bool is_settled(ShardIndex shard) const { return under_way_[shard] == 0; }
  Strays take_strays(ShardIndex shard);
  // Returns strays of a shard that was lost again before it deleted them.
  void put_back(ShardIndex shard, std::string_view table, std::span<const ItemKey> keys);
  std::size_t stray_count(ShardIndex shard) const;

 private:
  const IsUp is_up_;
  std::size_t turn_ = 0;
  ShardDirectory episodes_{10};  // 4096 of them
  std::vector<Strays> strays_;
  std::vector<std::size_t> under_way_;
};

}  // namespace reverie
