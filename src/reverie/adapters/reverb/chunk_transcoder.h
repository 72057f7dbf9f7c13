// Chunks in the form that Reverb's clients can read.
//     received as a message   --> that message, byte for byte
//     rows in Reverie's form  --> encoded once, kept in a cache with a bound in bytes
//
// Only the requested rows of a large chunk are encoded.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <string>
#include <tuple>

#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/record/chunk.h"
#include "reverie/reverb_wire/chunk_data.h"

namespace reverie {

// A ChunkData message, and the rows of the chunk that it holds. Without `owner` the chunk owns it.
struct TranscodedChunk {
  wire::Bytes bytes;
  std::uint32_t first_row = 0;
  std::shared_ptr<const std::string> owner;
};

// Thread-safe.
class ChunkTranscoder {
 public:
  // A chunk with at most this many bytes of rows is encoded as a whole.
  static constexpr std::size_t kWholeBytesMax = std::size_t{4} << 10;

  explicit ChunkTranscoder(std::size_t cache_bytes_max) : cache_bytes_max_(cache_bytes_max) {}

  // A message with at least the rows [begin, end) of `chunk`, under its own key. wire::write_chunk
  // lists the errors. Requires a non-empty range.
  Result<TranscodedChunk> transcode(const Chunk& chunk, std::uint32_t begin, std::uint32_t end);

  std::size_t cached_bytes() const;

 private:
  // The chunk's key and episode, and the rows. Not its address, which another chunk may reuse.
  using Key = std::tuple<ChunkKey, EpisodeId, std::uint32_t, std::uint32_t>;
  struct Entry {
    Key key;
    std::shared_ptr<const std::string> bytes;
  };

  std::shared_ptr<const std::string> find(const Key& key);
  void keep(const Key& key, std::shared_ptr<const std::string> bytes);

  const std::size_t cache_bytes_max_;
  mutable Mutex mutex_;
  std::size_t cached_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::list<Entry> entries_ REVERIE_GUARDED_BY(mutex_);  // the most recently used first
  std::map<Key, std::list<Entry>::iterator> by_key_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
