// How tables, schemas and layouts are encoded in a checkpoint.
#pragma once

#include <cstdint>
#include <vector>

#include "reverie/codec/byte_stream.h"
#include "reverie/record/trajectory.h"
#include "reverie/replay/table_image.h"

namespace reverie::checkpoint {

// No layout: the slot is free.
inline constexpr std::uint32_t kNoLayout = 0xffffffff;
// In times_sampled: the item is redelivered (sample_batch.h).
inline constexpr std::uint32_t kRedeliveredBit = 0x80000000;

void write_table(const TableImage& image, ByteWriter& out);
// Reads a whole section. If the reader has failed, the result is meaningless, here and below.
TableImage read_table(ByteReader& in);

void write_schema(const ChunkSchema& schema, ByteWriter& out);
Result<Ref<const ChunkSchema>> read_schema(ByteReader& in);

void write_layout(const Layout& layout, ByteWriter& out);
Result<Ref<const Layout>> read_layout(ByteReader& in);

// Where a chunk is, and everything that describes it except its columns.
struct ChunkEntry {
  ChunkOrigin origin;
  std::uint32_t rows = 0;
  std::uint32_t schema = 0;
  std::uint32_t file = 0;  // index in the manifest's list
  std::uint64_t offset = 0;
  std::uint64_t size_bytes = 0;
  std::uint32_t crc = 0;

  static constexpr std::size_t kBytes = 52;
};
void write_entry(const ChunkEntry& entry, ByteWriter& out);
ChunkEntry read_entry(ByteReader& in);

// The columns of a chunk, as stored in a file: `head` and then `parts`, which view the chunk and
// `own`. `raw` keeps its rows meanwhile.
struct ChunkBytes {
  std::uint32_t rows = 0;
  std::vector<std::byte> head;
  std::vector<std::span<const std::byte>> parts;
  std::vector<std::vector<std::byte>> own;
  RawRows raw;

  std::uint64_t size_bytes() const;
  std::uint32_t crc() const;
};
// Encodes the first `rows` rows of `chunk`, which must be published; but all rows of a chunk that
// its writer has encoded, perhaps with more rows than it had when the caller looked.
Result<ChunkBytes> chunk_bytes(const Chunk& chunk, std::uint32_t rows);
// The same for a chunk that is raw for good and has no columns of varying size; writes to `out`.
void write_raw_rows(const Chunk& chunk, std::uint32_t rows, ByteWriter& out);
// A chunk from such bytes. DATA_LOSS if they are malformed.
Result<Ref<Chunk>> read_chunk(const ChunkEntry& entry, const Ref<const ChunkSchema>& schema,
                              std::span<const std::byte> bytes, Allocator& allocator);

}  // namespace reverie::checkpoint
