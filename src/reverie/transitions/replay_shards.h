// ReplayShards: the tables that a replay buffer is divided into, so that many threads seldom wait
// for the same table's lock, or for cache lines that another core has just written.
//
//     add       each item --> a table that its place in its chunk determines     (a hash)
//     sample    a table, in proportion to its weight --> the whole batch
//     update    each ticket --> the table that is part of it
//
// An item is drawn with the same probability as from a single table that contains all items. What
// differs: the items of one batch are in one table, which is a random subset of the buffer; and
// each table has its own largest priority, and removes its own oldest item.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"
#include "reverie/record/trajectory.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Immutable, so thread-safe.
class ReplayShards {
 public:
  // A ticket's slot and shard take 32 bits together.
  static constexpr std::uint32_t kSlotBits = 24;
  static constexpr std::size_t kShardsMax = std::size_t{1} << (32 - kSlotBits);
  // Items of one of several shards, with room for those that are being replaced.
  static constexpr std::size_t kCapacityMax = (std::size_t{1} << kSlotBits) - (1 << 16);

  // The options of `count` tables which together have those of `whole`: each gets its part of
  // max_size, and its own seed if the sampler has one. One table keeps the name; several are called
  // "name/0", ... INVALID_ARGUMENT if `count` is not in [1, kShardsMax] or gives a table no item or
  // too many.
  static Result<std::vector<TableOptions>> split(const TableOptions& whole, std::size_t count);

  // `tables` are the names of the tables of split(). Several must be tables of this process, else
  // UNIMPLEMENTED.
  static Result<std::shared_ptr<const ReplayShards>> open(ReplayService& service,
                                                          std::vector<std::string> tables);

  std::size_t count() const { return tables_.size(); }
  const std::string& table(std::size_t shard) const { return tables_[shard]; }

  // The shard of a new item.
  std::size_t of(const TrajectoryView& item) const;
  // The shard whose share of the total weight contains `choice`, which is in [0, 1). None if none
  // of several has any: an item of priority 0 has none. Each share is as of the last change of its
  // table.
  std::optional<std::size_t> choose(double choice) const;

  std::uint64_t ticket(std::size_t shard, std::uint64_t in_table) const {
    return in_table | static_cast<std::uint64_t>(shard) << kSlotBits;
  }
  // May be count() or more, for a ticket of another buffer.
  std::size_t shard_of(std::uint64_t ticket) const {
    return count() == 1 ? 0 : static_cast<std::uint32_t>(ticket) >> kSlotBits;
  }
  std::uint64_t in_table(std::uint64_t ticket) const {
    constexpr std::uint64_t kShard = (kShardsMax - 1) << kSlotBits;
    return count() == 1 ? ticket : ticket & ~kShard;
  }

 private:
  explicit ReplayShards(std::vector<std::string> tables) : tables_(std::move(tables)) {}

  const std::vector<std::string> tables_;
  std::vector<const std::atomic<double>*> masses_;  // of several tables
};

}  // namespace reverie
