// Stored chunks: a chunk sent by a Reverie client to a Reverie server, in the form that both keep.
//
//     key, episode, first_step, rows
//     columns    dtype, extents, and codec and bytes if encoded
//     storage    rows as a raw chunk has them in memory, or encoded columns one after another
//
// Raw rows are sent from the writer's memory, and stay raw in the server; columns that the writer
// compresses are sent and kept compressed. Reverb's own form (reverb_wire/chunk_data.h) uses Snappy
// for everything, which every read has to undo. A server announces in its answers that it accepts
// stored chunks; before that, and for all other servers, chunks are sent in Reverb's form.
//
// Columns of varying size are always sent in Reverb's form.
#pragma once

#include <cstdint>
#include <functional>

#include "reverie/base/status.h"
#include "reverie/native_wire/payload_builder.h"
#include "reverie/record/chunk.h"
#include "reverie/reverb_wire/chunk_data.h"

namespace reverie {

// The version of this form that we write and read.
inline constexpr std::uint64_t kStoredChunkVersion = 1;

inline bool has_stored_form(const Chunk& chunk) {
  return !chunk.schema().has_variable();
}

// Whether some of its rows are in files; such a chunk has no other form.
bool has_external_columns(const Chunk& chunk);

// Appends rows [begin, end) as a field of an InsertStreamRequest. Columns of large rows of a
// compressible chunk, which its writer packs only when it is full, are compressed with lz4 if that
// pays. Requires has_stored_form() and a non-empty range. FAILED_PRECONDITION if some of the rows
// are not published, DATA_LOSS if an encoded column is damaged.
Status put_stored_chunk(PayloadBuilder& message, const Chunk& chunk, std::uint32_t begin,
                        std::uint32_t end, ChunkKey key);

// Gives the memory for a part of a message: a view of it, or a copy.
using KeepPart = std::function<Result<Buffer>(wire::Bytes part)>;

// INVALID_ARGUMENT, with the value and the bound, for malformed bytes. The bytes of encoded columns
// are checked only when they are read. The key is where ChunkData has it, for wire::chunk_key_of().
Result<Ref<Chunk>> read_stored_chunk(wire::Bytes bytes, wire::SchemaCache& schemas,
                                     const KeepPart& keep);

}  // namespace reverie
