// RawGather: gathers a batch whose chunks are raw and laid out alike, column by column.
//
//     items --find--> segments { rows, capacity, offset, length }    (each chunk's header once)
//     segments --copy(column)--> [B, T, ...]                          (one tight loop per column)
//
// Chunks and rows of a large table are spread over memory, so a gather is bound by cache misses,
// and its speed depends on how many are in flight. A loop over one column is so short that the
// processor itself runs a dozen items ahead.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "reverie/gather/batch_plan.h"
#include "reverie/record/trajectory.h"

namespace reverie {

// For one batch. Not thread-safe.
class RawGather {
 public:
  // False if the items do not qualify: an encoded chunk, columns with different places in some
  // chunks, or that share pieces in only some items.
  bool find(std::span<const TrajectoryView> items, const BatchPlan& plan);

  // Copies a column of fixed rows to its place in the batch; pads with zeros. Requires find().
  void copy(std::size_t column, std::byte* to) const;

 private:
  // Consecutive rows of one chunk, and the first row of the batch to copy them to.
  struct Segment {
    const std::byte* rows;
    std::uint64_t to_row;
    std::uint32_t capacity;
    std::uint32_t offset;
    std::uint32_t length;
  };
  // Columns over the same pieces.
  struct Run {
    std::vector<std::size_t> columns;
    std::uint32_t rows = 0;               // of an item, padding included
    const ChunkSchema* schema = nullptr;  // the latest one with the expected layout
    std::vector<Segment> segments;
    bool single_rows = true;  // no segment has more than one
    bool has_padding = false;
  };
  struct Column {
    std::size_t run;
    std::uint16_t chunk_column;
    std::size_t bytes_before = 0;
    std::size_t row_bytes = 0;
  };
  // The pieces of each run in items of one layout.
  struct Cut {
    const Layout* layout = nullptr;
    std::vector<std::pair<std::uint16_t, std::uint16_t>> pieces;
  };

  void begin(const Layout& layout, const BatchPlan& plan);
  const Cut* cut_of(const Layout& layout);
  bool add(Run& run, std::span<const Piece> pieces, std::uint64_t to_row);
  bool has_expected_layout(Run& run, const ChunkSchema& schema);
  template <typename Copy>
  void for_each(const Column& column, std::byte* to, Copy copy) const;

  std::size_t item_count_ = 0;
  std::vector<RawRows> pins_;  // of chunks that may be encoded meanwhile
  std::vector<Run> runs_;
  std::vector<Column> columns_;
  std::vector<Cut> cuts_;  // by a hash of the layout's address; a collision replaces
};

}  // namespace reverie
