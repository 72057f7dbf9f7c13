// Items for tests: one float32 column of scalars, `rows` rows with values value, value + 1, ...
#pragma once

#include <cstring>
#include <optional>
#include <vector>

#include "reverie/codec/column_decoder.h"
#include "reverie/record/item.h"
#include "reverie/record/table_info.h"

namespace reverie::testing {

inline Ref<const ChunkSchema> float_schema() {
  static const auto* const schema = new Ref<const ChunkSchema>(
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"x", DType::kFloat32, {}}}));
  return *schema;
}

inline Ref<const Layout> float_layout() {
  static const auto* const layout = new Ref<const Layout>(make_ref<Layout>(
      std::vector<LayoutColumn>{{{"x", DType::kFloat32, {}}, 0, 0, 1, false}}, std::string("x")));
  return *layout;
}

inline Ref<Chunk> float_chunk(float value, std::uint32_t rows, ChunkOrigin origin = {}) {
  Ref<Chunk> chunk = Chunk::open(float_schema(), origin, rows, 0, Allocator::heap()).value();
  for (std::uint32_t row = 0; row < rows; ++row) {
    const float x = value + static_cast<float>(row);
    chunk->set_row(0, row, std::as_bytes(std::span(&x, 1)));
  }
  chunk->publish(rows);
  return chunk;
}

inline Item item_over(const Chunk& chunk, ItemKey key, std::optional<double> priority,
                      std::uint32_t offset, std::uint32_t length) {
  const Piece piece{&chunk, offset, length};
  return {key, priority, Trajectory(float_layout(), {&piece, 1})};
}

inline Item make_item(ItemKey key, std::optional<double> priority, float value = 0,
                      std::uint32_t rows = 1, ChunkOrigin origin = {}) {
  const Ref<Chunk> chunk = float_chunk(value, rows, origin);
  return item_over(*chunk, key, priority, 0, rows);
}

// A row of a chunk made as above, which may since have been encoded.
inline float float_row(const Chunk& chunk, std::uint32_t row) {
  float value = 0;
  if (chunk.is_raw()) {
    std::memcpy(&value, chunk.row(0, row), sizeof(value));
    return value;
  }
  ColumnDecoder decoder;
  const Status opened = decoder.open(chunk.encoded_column(0).codec, chunk.schema().column(0),
                                     chunk.rows(), chunk.encoded_bytes(0));
  REVERIE_CHECK(opened.ok());
  std::memcpy(&value, decoder.row(row).value().data(), sizeof(value));
  return value;
}

// The first value of an item made as above.
inline float value_of(const TrajectoryView& trajectory) {
  const Piece& piece = trajectory.pieces().front();
  return float_row(*piece.chunk, piece.offset);
}

inline TableOptions table_options(std::string name, std::string sampler, std::string remover,
                                  std::int64_t max_size, RateLimiterSpec limiter) {
  TableOptions options;
  options.name = std::move(name);
  options.sampler.name = std::move(sampler);
  options.remover.name = std::move(remover);
  options.max_size = max_size;
  options.rate_limiter = limiter;
  return options;
}

}  // namespace reverie::testing
