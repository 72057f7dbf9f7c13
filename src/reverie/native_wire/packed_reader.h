// PackedReader: packed samples (packed_format.h) back into a batch.
//
// The chunks view the message that they came in. What came is checked whole before the batch gets
// any of it: every count, size and reference.
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

// What the trajectories of one message lie in: to be kept as long as they are.
struct PackedSamples {
  std::vector<Ref<const ChunkSchema>> schemas;
  std::vector<Ref<const Layout>> layouts;
  std::vector<Ref<Chunk>> chunks;
  std::vector<Piece> pieces;
};

// A part of the packed bytes, as the storage of a chunk: a view that keeps what it lies in, or one
// that is kept by other means.
using ViewPart = std::function<Buffer(std::span<const std::byte> part)>;

// Appends the samples in `packed` to the batch; at most `count_max`. Columns get `names`, as those
// of any other item do. DATA_LOSS, with the value and the bound, for malformed bytes; then the
// batch is as it was.
Status read_packed(std::span<const std::byte> packed, const ViewPart& view,
                   const wire::ColumnNames& names, std::size_t count_max, SampleBatch& batch,
                   PackedSamples& samples);
// The same of a part of `message`, which the chunks keep.
Status read_packed(const Ref<GrpcMessage>& message, std::span<const std::byte> packed,
                   const wire::ColumnNames& names, std::size_t count_max, SampleBatch& batch,
                   PackedSamples& samples);

}  // namespace reverie
