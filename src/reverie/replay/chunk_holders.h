// ChunkHolders: which tables hold each chunk, in a store whose tables have bounds on memory of
// their own (TableOptions::memory_bytes).
//
//     chunk held by   [ 16 MB table ]                   counts there
//                     [ 16 MB table, 64 MB table ]      counts in the second alone
//                     [ 16 MB table, no bound ]         stays in memory, as far as the store's lets
//
// A chunk counts for one table: the one of the largest bound that holds it, and a table without a
// bound has the largest. So no table loses from memory what a more generous one keeps there, and
// all that is in memory for bounded tables is at most the sum of their bounds.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/record/chunk.h"
#include "reverie/record/table_info.h"
#include "reverie/tensor/chunk_memory.h"

namespace reverie {

// Thread-safe. add() and remove() are called under a table's lock; chunks leave memory in shrink()
// alone.
class ChunkHolders {
 public:
  using Group = ChunkMemory::Group;

  // Before the tables' chunks are allocated. Null where no table has a bound. INVALID_ARGUMENT for
  // a bound that is too small or more than the store's, and where there is no `memory`.
  static Result<std::unique_ptr<ChunkHolders>> make(const std::vector<TableOptions>& tables,
                                                    const std::shared_ptr<ChunkMemory>& memory);

  // What a table of these options calls itself below.
  Group group_of(const TableOptions& table) const;
  // A table's piece refers to the chunk, or ceases to. add() may throw std::bad_alloc, and has done
  // nothing then.
  void add(const Chunk& chunk, Group group);
  void remove(const Chunk& chunk, Group group);
  // The chunk's rows are elsewhere now.
  void on_moved(const Chunk& chunk);
  // Called without a lock.
  void shrink() { memory_->shrink(); }

 private:
  struct Held {
    Group group = ChunkMemory::kUnheld;
    std::uint32_t pieces = 0;
  };
  // First the one for which the chunk counts.
  using Holders = std::vector<Held>;

  explicit ChunkHolders(std::shared_ptr<ChunkMemory> memory) : memory_(std::move(memory)) {}
  void assign(const Chunk& chunk, Group group) REVERIE_REQUIRES(mutex_);

  const std::shared_ptr<ChunkMemory> memory_;
  std::vector<std::string> names_;  // of tables with a bound, the largest first
  Mutex mutex_;
  std::unordered_map<const Chunk*, Holders> holders_ REVERIE_GUARDED_BY(mutex_);
  std::vector<ChunkMemory::Range> places_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
