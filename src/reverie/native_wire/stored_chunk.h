// A chunk on its way to a server of ours: as both sides keep it.
//
//     key, episode, first_step, rows
//     columns    dtype, extents, and of encoded ones the codec and the bytes
//     storage    rows as a raw chunk has them in memory, or encoded columns one behind the other
//
// Raw rows are sent from where the writer put them, and stay raw where they arrive; columns that
// the writer compresses are sent and kept compressed. Reverb's own form (reverb_wire/chunk_data.h)
// is Snappy for all, which every read has to undo. A server says in its answers that it takes
// stored chunks; before that, and to all other servers, chunks go in Reverb's form.
//
// Columns of varying size always go in Reverb's form.
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

// Whether some of its rows are in files: it has no other form.
bool has_external_columns(const Chunk& chunk);

// Appends rows [begin, end) as a field of an InsertStreamRequest. Columns of large rows of a
// compressible chunk, which its writer packs only when it is full, are compressed with lz4 where
// that pays. Requires has_stored_form() and a non-empty range of published rows. DATA_LOSS where an
// encoded column is damaged.
Status put_stored_chunk(PayloadBuilder& message, const Chunk& chunk, std::uint32_t begin,
                        std::uint32_t end, ChunkKey key);

// Where a part of a message is to stay: a view of it, or a copy.
using KeepPart = std::function<Result<Buffer>(wire::Bytes part)>;

// INVALID_ARGUMENT, with the value and the bound, for malformed bytes. The bytes of encoded columns
// are only checked when they are read. The key is where ChunkData has it, for wire::chunk_key_of().
Result<Ref<Chunk>> read_stored_chunk(wire::Bytes bytes, wire::SchemaCache& schemas,
                                     const KeepPart& keep);

}  // namespace reverie
