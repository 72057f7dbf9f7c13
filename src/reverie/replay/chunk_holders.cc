// Tested in chunk_holders_test.cc.
#include "reverie/replay/chunk_holders.h"

#include <algorithm>

namespace reverie {
namespace {

// Groups sorted by bound, the largest first: tables without a bound share the first group.
constexpr ChunkMemory::Group kUnbounded = ChunkMemory::kUnheld + 1;

}  // namespace

Result<std::unique_ptr<ChunkHolders>> ChunkHolders::make(
    const std::vector<TableOptions>& tables, const std::shared_ptr<ChunkMemory>& memory) {
  std::vector<const TableOptions*> bounded;
  for (const TableOptions& table : tables) {
    if (table.memory_bytes) bounded.push_back(&table);
  }
  if (bounded.empty()) return std::unique_ptr<ChunkHolders>();
  std::stable_sort(bounded.begin(), bounded.end(), [](const auto* a, const auto* b) {
    return *a->memory_bytes > *b->memory_bytes;
  });
  if (memory == nullptr) {
    return invalid_argument(
        "table '{}' has memory_bytes {}, but its store has no file for what is beyond; give "
        "StoreOptions::memory",
        bounded.front()->name, *bounded.front()->memory_bytes);
  }
  std::unique_ptr<ChunkHolders> holders(new ChunkHolders(memory));
  std::int64_t sum = 0;
  for (const TableOptions* const table : bounded) {
    const std::int64_t bytes = *table->memory_bytes;
    const std::optional<std::int64_t> of_store = memory->memory_bytes();
    if (of_store && bytes > *of_store) {
      return invalid_argument(
          "memory_bytes of table '{}' is {}, more than the {} of its store; lower it, or raise the "
          "store's",
          table->name, bytes, *of_store);
    }
    const auto group = kUnbounded + 1 + static_cast<Group>(holders->names_.size());
    if (Status status = memory->set_bound(group, bytes); !status.ok()) {
      return status.with_context("table '" + table->name + "'");
    }
    holders->names_.push_back(table->name);
    // A chunk that is being loaded belongs to no table for a while.
    sum = bytes > std::numeric_limits<std::int64_t>::max() - sum
              ? std::numeric_limits<std::int64_t>::max()
              : sum + bytes;
  }
  REVERIE_RETURN_IF_ERROR(memory->set_bound(ChunkMemory::kUnheld, sum));
  return holders;
}

ChunkHolders::Group ChunkHolders::group_of(const TableOptions& table) const {
  const auto found = std::find(names_.begin(), names_.end(), table.name);
  if (found == names_.end()) return kUnbounded;
  return kUnbounded + 1 + static_cast<Group>(found - names_.begin());
}

void ChunkHolders::assign(const Chunk& chunk, Group group) {
  places_.clear();
  chunk.add_storage(places_);
  memory_->assign(places_, group);
}

void ChunkHolders::add(const Chunk& chunk, Group group) {
  const MutexLock lock(mutex_);
  places_.reserve(1);
  Holders& holders = holders_[&chunk];
  for (Held& held : holders) {
    if (held.group != group) continue;
    ++held.pieces;
    return;
  }
  try {
    holders.push_back({group, 1});
  } catch (const std::bad_alloc&) {
    if (holders.empty()) holders_.erase(&chunk);
    throw;
  }
  const auto first = [](const Held& a, const Held& b) { return a.group < b.group; };
  std::iter_swap(holders.begin(), std::min_element(holders.begin(), holders.end(), first));
  if (holders.front().group == group) assign(chunk, group);
}

void ChunkHolders::remove(const Chunk& chunk, Group group) {
  const MutexLock lock(mutex_);
  const auto found = holders_.find(&chunk);
  REVERIE_CHECK(found != holders_.end());
  Holders& holders = found->second;
  const auto held = std::find_if(holders.begin(), holders.end(),
                                 [&](const Held& each) { return each.group == group; });
  REVERIE_CHECK(held != holders.end());
  if (--held->pieces > 0) return;
  const bool was_first = held == holders.begin();
  *held = holders.back();
  holders.pop_back();
  if (holders.empty()) {
    holders_.erase(found);
    return;
  }
  if (!was_first) return;
  const auto first = [](const Held& a, const Held& b) { return a.group < b.group; };
  std::iter_swap(holders.begin(), std::min_element(holders.begin(), holders.end(), first));
  assign(chunk, holders.front().group);
}

void ChunkHolders::on_moved(const Chunk& chunk) {
  const MutexLock lock(mutex_);
  const auto found = holders_.find(&chunk);
  if (found != holders_.end()) assign(chunk, found->second.front().group);
}

}  // namespace reverie
