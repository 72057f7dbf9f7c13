// ChunkHolders: which tables hold each chunk, in a store whose tables have their own bounds on
// memory (TableOptions::memory_bytes).
//
//     chunk held by   [ 16 MB table ]                   counts there
//                     [ 16 MB table, 64 MB table ]      counts only in the second
//                     [ 16 MB table, no bound ]         bound only by the store
//
// A chunk counts for one table: of those that hold it, the one with the largest bound; no bound is
// the largest. So a small bound never evicts from memory what a table with a larger one keeps
// there, and bounded tables together keep at most the sum of their bounds in memory.
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

// Thread-safe. add() and remove() are called under a table's lock; chunks leave memory only in
// shrink().
class ChunkHolders {
 public:
  using Group = ChunkMemory::Group;

  // Call it before the tables' chunks are allocated. Null if no table has a bound. INVALID_ARGUMENT
  // if a bound is too small or above the store's, and if `memory` is null.
  static Result<std::unique_ptr<ChunkHolders>> make(const std::vector<TableOptions>& tables,
                                                    const std::shared_ptr<ChunkMemory>& memory);

  // The group of a table with these options, for the calls below.
  Group group_of(const TableOptions& table) const;
  // A piece of a table's refers to the chunk, or no longer does. add() may throw std::bad_alloc,
  // without effect.
  void add(const Chunk& chunk, Group group);
  void remove(const Chunk& chunk, Group group);
  // The chunk's rows have moved in memory.
  void on_moved(const Chunk& chunk);
  // Called without a lock.
  void shrink() { memory_->shrink(); }

 private:
  struct Held {
    Group group = ChunkMemory::kUnheld;
    std::uint32_t pieces = 0;
  };
  // The first is the one that the chunk counts for.
  using Holders = std::vector<Held>;

  explicit ChunkHolders(std::shared_ptr<ChunkMemory> memory) : memory_(std::move(memory)) {}
  void assign(const Chunk& chunk, Group group) REVERIE_REQUIRES(mutex_);

  const std::shared_ptr<ChunkMemory> memory_;
  std::vector<std::string> names_;  // of tables with a bound, largest first
  Mutex mutex_;
  std::unordered_map<const Chunk*, Holders> holders_ REVERIE_GUARDED_BY(mutex_);
  std::vector<ChunkMemory::Range> places_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
