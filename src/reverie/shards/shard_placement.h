// ShardPlacement: to which shard each item goes, and where it may be by mistake; without lock,
// thread or clock.
//
// An episode's items go to one shard, so that they share its chunks. Each new episode takes the
// next shard that is up, and so does each item that belongs to no episode.
//
// An item whose insert was not confirmed when its shard was lost goes to another. The first may
// have it as well: it is a *stray* of that shard, to be deleted there before that shard is used
// again. Only items that were under way when the shard was lost can be strays.
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

  // The shard of an item, none where all are down. An insert is under way there until it is
  // settled.
  std::optional<ShardIndex> place(std::optional<std::uint64_t> episode);
  void settle(ShardIndex shard) { --under_way_[shard]; }
  // The same; `keys` go elsewhere, and the shard may have them.
  void settle_lost(ShardIndex shard, std::string_view table, std::span<const ItemKey> keys);

  // Whether all inserts of a shard are settled: before that its strays are not all known.
  bool is_settled(ShardIndex shard) const { return under_way_[shard] == 0; }
  Strays take_strays(ShardIndex shard);
  // For a shard that was lost again before it had deleted them.
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
