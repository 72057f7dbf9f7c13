// ChunkPacker: which columns of a writer's sealed chunks are worth compressing.
//
// With kLz4 or kZstd every column is tried, and stays raw in a chunk where it does not become
// smaller. With kAuto a column is tried with lz4 when it holds booleans or integers and a row has
// at least kRowBytesMin bytes: pictures, maps, token lists. Smaller rows cost more to unpack than
// they save, and floating point numbers rarely repeat. A try *pays* if at most 3/4 of the bytes
// remain; a column whose tries have not paid kMissesMax times in a row is left raw for the next 64
// chunks, then for twice as many, and so on. So data that becomes compressible later is detected,
// and noise costs almost nothing.
//
// A state machine without lock or clock: the same chunks give the same choices.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "reverie/codec/codec.h"
#include "reverie/record/chunk.h"
#include "reverie/record/compact.h"

namespace reverie {

// Not thread-safe.
class ChunkPacker {
 public:
  static constexpr std::size_t kRowBytesMin = 256;
  static constexpr int kMissesMax = 3;
  static constexpr std::uint64_t kPauseChunks = 64;

  // The columns in `raw` are never compressed.
  explicit ChunkPacker(CodecChoice choice, std::vector<std::size_t> raw = {})
      : choice_(choice), raw_(std::move(raw)) {}

  // Whether a chunk that is opened now may be packed when it is sealed.
  bool wants(const ChunkSchema& schema) const;

  // Compresses the published rows of a sealed, compressible chunk in place, if that saves memory.
  // Leaves it raw when it does not, or when there is no memory for it.
  void pack(Chunk& chunk, Allocator& allocator);
  // A chunk was sealed that should not be packed.
  void note_unpacked();

  // Mean bytes per row of the latest packed chunk; 0 before the first.
  double packed_row_bytes() const { return packed_row_bytes_; }

 private:
  struct Column {
    int misses = 0;
    std::uint64_t pause = 0;  // chunks until the next try
    std::uint64_t next_pause = kPauseChunks;
  };

  ColumnTry plan(const ChunkSchema& schema, std::size_t column) const;
  static void note(Column& column, bool is_worthwhile);

  CodecChoice choice_;
  std::vector<std::size_t> raw_;
  std::vector<Column> columns_;   // by index, which a column keeps
  std::vector<ColumnTry> tries_;  // of the current chunk; kept to reuse the memory
  double packed_row_bytes_ = 0;
};

}  // namespace reverie
