// ChunkData: a chunk as it crosses Reverb's wire.
//
//     chunk_key, sequence_range, delta_encoded
//     data { tensor 0 { dtype, shape [rows, ...], content }  tensor 1 ... }
//                                                 ^ a column's bytes, never looked into
//
// A chunk that comes in is kept as the message that it came in: its columns view that message, and
// a reader that speaks Reverb's protocol gets the message back byte for byte. A chunk of our own is
// encoded when a reader asks for it that cannot read it as it is.
//
// Two layouts exist and are one to us: a chunk of all columns, and a chunk of one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/record/chunk.h"
#include "reverie/reverb_wire/fields.h"

namespace reverie::wire {

// The schemas that came last: the chunks of a stream are of a few kinds. Not thread-safe.
class SchemaCache {
 public:
  // The schema of these columns; made when none of the last is like it.
  Ref<const ChunkSchema> find(std::vector<TensorSpec> columns);
  // What all that were made take, about.
  std::size_t made_bytes() const { return made_bytes_; }

 private:
  static constexpr std::size_t kKept = 64;

  std::vector<Ref<const ChunkSchema>> schemas_;
  std::size_t next_ = 0;  // to be replaced
  std::size_t made_bytes_ = 0;
};

// The key of a chunk, without a look at the rest.
Result<ChunkKey> chunk_key_of(Bytes message);

// Keeps `message`. INVALID_ARGUMENT, with the value and the bound, for malformed bytes, no tensors
// or more than 65535, tensors of different numbers of rows or none, a type or shape that cannot be
// kept; UNIMPLEMENTED for the form that only old checkpoints have.
Result<Ref<Chunk>> read_chunk(Buffer message, SchemaCache& schemas);

// A message in a buffer: what stands before content was not known to be so short.
struct WrittenChunk {
  std::vector<std::byte> storage;
  std::size_t begin = 0;

  Bytes bytes() const { return Bytes(storage).subspan(begin); }
};

// The message for rows [begin, end) of any chunk, each column encoded anew, where it is to stay.
// Requires a non-empty range below chunk.rows(). UNIMPLEMENTED for a type that Reverb has no number
// for, DATA_LOSS where an encoded column is damaged.
Result<WrittenChunk> encode_chunk(const Chunk& chunk, std::uint32_t begin, std::uint32_t end,
                                  ChunkKey key);
// The same as a string.
Result<std::string> write_chunk(const Chunk& chunk, std::uint32_t begin, std::uint32_t end,
                                ChunkKey key);

}  // namespace reverie::wire
