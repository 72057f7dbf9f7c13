// Reads packed samples (packed_format.h) into a batch.
//
// The chunks view the message that contains them. Every count, size and reference of a message is
// checked before anything is added to the batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/grpc/grpc_message.h"
#include "reverie/native_wire/packed_format.h"
#include "reverie/record/chunk.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/service/sample_batch.h"

namespace reverie {

// Owns the chunks of the trajectories of one message: keep it as long as they are used.
struct PackedSamples {
  std::vector<Ref<const ChunkSchema>> schemas;
  std::vector<Ref<const Layout>> layouts;
  std::vector<Ref<Chunk>> chunks;
  std::vector<Piece> pieces;
  bool is_mapped = false;  // some chunks lie in the store's memory
};

// Turns a part of the packed bytes, or of the store's memory, into a chunk's storage: a view that
// keeps its memory alive, since a chunk may outlive its batch.
using ViewPart = std::function<Buffer(std::span<const std::byte> part)>;

// Memory of the store that this process maps. It stays unchanged as long as a view of it lives.
using FindMapped = std::function<Result<std::span<std::byte>>(const packed::Mapped& mapped)>;

// Appends the samples in `packed` to the batch; at most `count_max`. Columns get `names`, as for
// other items. DATA_LOSS, with the value and the bound, for malformed bytes; then the batch is
// unchanged.
Status read_packed(std::span<const std::byte> packed, const ViewPart& view,
                   const wire::ColumnNames& names, std::size_t count_max, SampleBatch& batch,
                   PackedSamples& samples, const FindMapped& find_mapped = nullptr);
// The same for a part of `message`, which the chunks keep alive.
Status read_packed(const Ref<GrpcMessage>& message, std::span<const std::byte> packed,
                   const wire::ColumnNames& names, std::size_t count_max, SampleBatch& batch,
                   PackedSamples& samples);

}  // namespace reverie
