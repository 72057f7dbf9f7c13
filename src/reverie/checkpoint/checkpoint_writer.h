// Writes one checkpoint: tables, segment by segment, and the chunks that are not on the disk yet.
//
//     freeze --> items, selectors --> `tables`        chunk seen for the first time --> `chunks-N`
//                                                     chunk of an earlier checkpoint --> a link
//                                                     the same object with as many rows: neither
//                                                     read nor hashed
//            --> manifest --> durable_rename
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "reverie/base/random.h"
#include "reverie/checkpoint/manifest.h"
#include "reverie/checkpoint/table_codec.h"
#include "reverie/os/file_system.h"
#include "reverie/replay/local_service.h"

namespace reverie::checkpoint {

// Identifies a chunk: by who made it, and what is in it.
struct ChunkName {
  ChunkOrigin origin;
  std::uint32_t rows = 0;
  std::uint32_t crc = 0;
  std::uint64_t size_bytes = 0;

  friend bool operator==(const ChunkName& a, const ChunkName& b) {
    return a.origin.key == b.origin.key && a.origin.episode == b.origin.episode &&
           a.origin.first_step == b.origin.first_step && a.rows == b.rows && a.crc == b.crc &&
           a.size_bytes == b.size_bytes;
  }
  struct Hash {
    std::size_t operator()(const ChunkName& name) const {
      return mix64(name.origin.key ^ (std::uint64_t{name.crc} << 32) ^ name.rows);
    }
  };
};

// Where a chunk's bytes are.
struct StoredChunk {
  std::uint64_t file = 0;  // its number
  std::uint64_t offset = 0;
};

// A file of chunks.
struct StoredFile {
  std::uint64_t size_bytes = 0;
  std::uint32_t crc = 0;  // of the whole file; 0: unknown
};

// What is known about the files of the newest checkpoint.
struct StoredChunks {
  using Chunks = std::unordered_map<ChunkName, StoredChunk, ChunkName::Hash>;
  // To hash a smaller chunk that is in memory costs less than to look it up.
  static constexpr std::uint64_t kMarkedBytesMin = 1024;

  StoredChunks() = default;
  StoredChunks(StoredChunks&&) = default;  // `marked` refers to `chunks`
  StoredChunks& operator=(StoredChunks&&) = default;

  std::string folder;  // the folder with their names; empty: none known
  Chunks chunks;
  // By Chunk::checkpoint_mark().
  std::unordered_map<std::uint32_t, const Chunks::value_type*> marked;
  std::map<std::uint64_t, StoredFile> files;  // by number
  // False of files that were found there: someone may have copied them, and not synced the copies.
  bool is_synced = true;
};

// Marks `chunk` as the one that is stored as `entry`, an element of stored.chunks.
void mark_stored(const Chunk& chunk, const StoredChunks::Chunks::value_type& entry,
                 StoredChunks& stored);

struct WriteRequest {
  FileSystem& files;
  const std::string& root;
  std::uint64_t number;
  std::span<const std::byte> payload;
  std::int64_t created_ns;
  const std::atomic<bool>& is_cancelled;
  // The end of a journal that is not continued; a store with a log gives its own position.
  std::uint64_t journal_position = 0;
};

struct Written {
  std::string folder;
  std::uint64_t new_bytes = 0;         // written for it
  std::uint64_t all_bytes = 0;         // of all its files
  std::uint64_t journal_position = 0;  // the last record that it includes
};

// Writes `service` as checkpoint `number`, and updates `stored`. CANCELLED soon after
// `is_cancelled`. On an error nothing is published and `stored` is unchanged.
Result<Written> write_checkpoint(LocalService& service, const WriteRequest& request,
                                 StoredChunks& stored);
// RESOURCE_EXHAUSTED: the error if there is no memory for that.
Status no_memory_to_write();

}  // namespace reverie::checkpoint
