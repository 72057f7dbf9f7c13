// Reads any bytes as packed samples: they are refused and the batch is unchanged, or they give
// trajectories whose rows point into the message, and decode or are refused.
//
// Input: a SampleStreamResponse.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "reverie/codec/column_codec.h"
#include "reverie/native_wire/packed_reader.h"
#include "reverie/reverb_wire/requests.h"
#include "tests/support/fake_grpc_call.h"

namespace {

using namespace reverie;

constexpr std::size_t kCountMax = 1000;

void require(bool holds) {
  if (!holds) std::abort();
}

std::size_t sum(std::span<const std::byte> bytes) {
  std::size_t total = 0;
  for (const std::byte b : bytes) total += static_cast<std::size_t>(b);
  return total;
}

// Reads all rows of a column of a piece.
std::size_t touch(const Piece& piece, std::size_t c) {
  const Chunk& chunk = *piece.chunk;
  std::size_t total = 0;
  if (chunk.is_raw()) {
    for (std::uint32_t r = 0; r < piece.length; ++r) {
      total += sum(chunk.row_bytes(c, piece.offset + r));
    }
    return total;
  }
  const auto rows = decode_column(chunk.encoded_column(c).codec, chunk.schema().column(c),
                                  chunk.rows(), chunk.encoded_bytes(c));
  if (!rows.ok()) return 0;
  for (std::uint32_t r = 0; r < piece.length; ++r) total += sum((*rows)[piece.offset + r]);
  return total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Ref<GrpcMessage> message =
      grpc_message(std::string(reinterpret_cast<const char*>(data), size));
  const auto packed = wire::read_packed_response(message->bytes());
  if (!packed.ok()) return 0;
  SampleBatch batch;
  PackedSamples samples;
  const Status status = read_packed(message, packed->samples, wire::ColumnNames::numbered(2),
                                    kCountMax, batch, samples);
  require(status.ok() ? batch.size() <= kCountMax : batch.empty());
  std::size_t looked_at = 0;
  for (const TrajectoryView& trajectory : batch.trajectories()) {
    require(check_trajectory(trajectory).ok());
    for (const LayoutColumn& column : trajectory.layout->columns()) {
      for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
        // Long pieces cost time and test nothing new.
        if (trajectory.pieces()[p].length > 1000 || ++looked_at > 100) continue;
        require(touch(trajectory.pieces()[p], column.chunk_column) + 1 > 0);
      }
    }
  }
  return 0;
}
