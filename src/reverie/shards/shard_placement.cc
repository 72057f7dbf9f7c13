#include "reverie/shards/shard_placement.h"

#include <utility>

namespace reverie {

ShardPlacement::ShardPlacement(std::size_t shard_count, IsUp is_up)
    : is_up_(std::move(is_up)), strays_(shard_count), under_way_(shard_count) {}

std::optional<ShardIndex> ShardPlacement::place(std::optional<std::uint64_t> episode) {
  if (episode) {
    const std::optional<ShardIndex> known = episodes_.find(*episode);
    if (known && is_up_(*known)) {
      ++under_way_[*known];
      return known;
    }
  }
  for (std::size_t i = 0; i < strays_.size(); ++i) {
    const auto shard = static_cast<ShardIndex>((turn_ + i) % strays_.size());
    if (!is_up_(shard)) continue;
    turn_ = (shard + std::size_t{1}) % strays_.size();
    if (episode) episodes_.put(*episode, shard);
    ++under_way_[shard];
    return shard;
  }
  return std::nullopt;
}

void ShardPlacement::settle_lost(ShardIndex shard, std::string_view table,
                                 std::span<const ItemKey> keys) {
  settle(shard);
  put_back(shard, table, keys);
}

ShardPlacement::Strays ShardPlacement::take_strays(ShardIndex shard) {
  return std::exchange(strays_[shard], {});
}

void ShardPlacement::put_back(ShardIndex shard, std::string_view table,
                              std::span<const ItemKey> keys) {
  std::vector<ItemKey>& kept = strays_[shard][std::string(table)];
  kept.insert(kept.end(), keys.begin(), keys.end());
}

std::size_t ShardPlacement::stray_count(ShardIndex shard) const {
  std::size_t count = 0;
  for (const auto& [table, keys] : strays_[shard]) count += keys.size();
  return count;
}

}  // namespace reverie
