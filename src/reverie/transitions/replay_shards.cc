// Tested in tests/integration/replay_shards_test.cc.
#include "reverie/transitions/replay_shards.h"

#include <array>
#include <utility>
#include <variant>

#include "reverie/base/check.h"
#include "reverie/base/format.h"
#include "reverie/base/random.h"

namespace reverie {

Result<std::vector<TableOptions>> ReplayShards::split(const TableOptions& whole,
                                                      std::size_t count) {
  if (count < 1 || count > kShardsMax) {
    return invalid_argument("a replay buffer of {} shards; it must have from 1 to {}", count,
                            kShardsMax);
  }
  if (count == 1) return std::vector{whole};
  const auto capacity = static_cast<std::size_t>(whole.max_size);
  if (capacity / count < 1 || capacity / count >= kCapacityMax) {
    return invalid_argument(
        "a replay buffer of {} items in {} shards; each must hold from 1 to {} items, so give {} "
        "shards",
        capacity, count, kCapacityMax, capacity / count < 1 ? "fewer" : "more");
  }
  std::vector<TableOptions> tables(count, whole);
  for (std::size_t i = 0; i < count; ++i) {
    tables[i].name = format("{}/{}", whole.name, i);
    tables[i].max_size = static_cast<std::int64_t>(capacity / count + (i < capacity % count));
    const auto seed = tables[i].sampler.options.find("seed");
    if (seed == tables[i].sampler.options.end()) continue;
    if (const auto* const given = std::get_if<std::int64_t>(&seed->second)) {
      seed->second = static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(*given) + i) >> 1);
    }
  }
  return tables;
}

Result<std::shared_ptr<const ReplayShards>> ReplayShards::open(ReplayService& service,
                                                               std::vector<std::string> tables) {
  REVERIE_CHECK(!tables.empty() && tables.size() <= kShardsMax);
  std::shared_ptr<ReplayShards> shards(new ReplayShards(std::move(tables)));
  if (shards->count() == 1) return std::shared_ptr<const ReplayShards>(std::move(shards));
  for (const std::string& table : shards->tables_) {
    const std::atomic<double>* const mass = service.mass(table);
    if (mass == nullptr) {
      return unimplemented(
          "the store does not tell the weight of table '{}', so the replay buffer cannot have "
          "several; give it one shard, or a store in this process that has the table",
          table);
    }
    shards->masses_.push_back(mass);
  }
  return std::shared_ptr<const ReplayShards>(std::move(shards));
}

std::size_t ReplayShards::of(const TrajectoryView& item) const {
  if (count() == 1) return 0;
  const Piece& first = item.pieces().front();
  // Steps that follow each other, and those of environments that are stepped together, are in
  // different tables, so that each table has a part of every episode.
  return mix64(mix64(first.chunk->key()) + first.offset) % count();
}

std::optional<std::size_t> ReplayShards::choose(double choice) const {
  if (count() == 1) return 0;
  // Read once: others change them meanwhile.
  std::array<double, kShardsMax> masses;
  double total = 0;
  for (std::size_t i = 0; i < count(); ++i) {
    masses[i] = masses_[i]->load(std::memory_order_relaxed);
    total += masses[i];
  }
  double left = choice * total;
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < count(); ++i) {
    if (masses[i] <= 0) continue;
    last = i;  // if rounding leaves something at the end
    if (left < masses[i]) break;
    left -= masses[i];
  }
  return last;
}

}  // namespace reverie
