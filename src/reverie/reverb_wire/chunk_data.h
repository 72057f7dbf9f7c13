// ChunkData: a chunk in Reverb's protocol.
//
//     chunk_key, sequence_range, delta_encoded
//     data { tensor 0 { dtype, shape [rows, ...], content }  tensor 1 ... }
//                                                 ^ a column's bytes, never looked into
//
// A received chunk is kept as the message that it came in: its columns view that message, and a
// reader that speaks Reverb's protocol gets the message back byte for byte. A chunk in our own form
// is encoded when a reader requests it that cannot read that form.
//
// Two layouts exist and are treated alike: a chunk of all columns, and a chunk of one column.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/chunk.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// The latest schemas: the chunks of a stream have only a few. Not thread-safe.
class SchemaCache {
 public:
  // The schema of these columns, made if no cached one equals it.
  Ref<const ChunkSchema> find(std::vector<TensorSpec> columns);
  // The approximate memory of all schemas that were made.
  std::size_t made_bytes() const { return made_bytes_; }

 private:
  static constexpr std::size_t kKept = 64;

  std::vector<Ref<const ChunkSchema>> schemas_;
  std::size_t next_ = 0;  // replaced next
  std::size_t made_bytes_ = 0;
};

// The key of a chunk; does not parse the rest.
Result<ChunkKey> chunk_key_of(Bytes message);

// Keeps `message`. INVALID_ARGUMENT, with the value and the bound, for malformed bytes, no or more
// than 65535 tensors, tensors with different numbers of rows or no rows, an unsupported type or
// shape; UNIMPLEMENTED for the form that only old checkpoints have.
Result<Ref<Chunk>> read_chunk(Buffer message, SchemaCache& schemas);

// A message in a buffer. It may start after the buffer's start: the size of the head is known last.
struct WrittenChunk {
  std::vector<std::byte> storage;
  std::size_t begin = 0;

  Bytes bytes() const { return Bytes(storage).subspan(begin); }
};

// The message for rows [begin, end) of any chunk, with each column encoded again. Requires a
// non-empty range. FAILED_PRECONDITION if some of the rows are not published, UNIMPLEMENTED for a
// type that Reverb has no number for, DATA_LOSS if an encoded column is damaged.
Result<WrittenChunk> encode_chunk(const Chunk& chunk, std::uint32_t begin, std::uint32_t end,
                                  ChunkKey key);
// The same as a string.
Result<std::string> write_chunk(const Chunk& chunk, std::uint32_t begin, std::uint32_t end,
                                ChunkKey key);

}  // namespace reverie::wire
