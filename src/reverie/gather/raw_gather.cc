// Tested in batch_test.cc.
#include "reverie/gather/raw_gather.h"

#include <algorithm>
#include <utility>

#include "reverie/gather/copy_row.h"

namespace reverie {
namespace {

// Headers are prefetched this many items ahead: twice the cache misses that a core can have in
// progress.
constexpr std::size_t kItemsAhead = 24;
constexpr std::size_t kCutSlots = 64;

std::size_t cut_slot(const Layout* layout) {
  return (reinterpret_cast<std::uintptr_t>(layout) * 0x9e3779b97f4a7c15u) >> 58;
}

}  // namespace

bool RawGather::find(std::span<const TrajectoryView> items, const BatchPlan& plan) {
  item_count_ = items.size();
  begin(*items.front().layout, plan);
  for (Run& run : runs_) run.segments.reserve(items.size());
  const Layout* layout = nullptr;
  const Cut* cut = nullptr;
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i + kItemsAhead < items.size()) {
      __builtin_prefetch(items[i + kItemsAhead].pieces().front().chunk);
    }
    const TrajectoryView& item = items[i];
    if (item.layout != layout) {
      layout = item.layout;
      cut = cut_of(*layout);
      if (!cut) return false;
    }
    const std::span<const Piece> pieces = item.pieces();
    for (std::size_t r = 0; r < runs_.size(); ++r) {
      const auto [first, last] = cut->pieces[r];
      if (!add(runs_[r], pieces.subspan(first, std::size_t{last} - first), i * runs_[r].rows)) {
        return false;
      }
    }
  }
  return true;
}

// Learns from the first item which columns share pieces.
void RawGather::begin(const Layout& layout, const BatchPlan& plan) {
  std::vector<std::pair<std::uint16_t, std::uint16_t>> pieces;
  for (std::size_t c = 0; c < plan.columns.size(); ++c) {
    const LayoutColumn& column = layout.columns()[c];
    const std::pair range(column.piece_begin, column.piece_end);
    const auto run = static_cast<std::size_t>(std::ranges::find(pieces, range) - pieces.begin());
    if (run == pieces.size()) {
      pieces.push_back(range);
      runs_.emplace_back().rows = plan.columns[c].rows;
    }
    runs_[run].columns.push_back(c);
    columns_.push_back({run, column.chunk_column, 0, plan.columns[c].row_bytes});
  }
  cuts_.resize(kCutSlots);
  cuts_[cut_slot(&layout)] = {&layout, std::move(pieces)};
}

const RawGather::Cut* RawGather::cut_of(const Layout& layout) {
  Cut& cut = cuts_[cut_slot(&layout)];
  if (cut.layout == &layout) return &cut;
  cut.layout = nullptr;
  cut.pieces.resize(runs_.size());
  for (std::size_t r = 0; r < runs_.size(); ++r) {
    const LayoutColumn& first = layout.columns()[runs_[r].columns.front()];
    for (const std::size_t c : runs_[r].columns) {
      const LayoutColumn& column = layout.columns()[c];
      if (column.chunk_column != columns_[c].chunk_column ||
          column.piece_begin != first.piece_begin || column.piece_end != first.piece_end) {
        return nullptr;
      }
    }
    cut.pieces[r] = {first.piece_begin, first.piece_end};
  }
  cut.layout = &layout;
  return &cut;
}

inline bool RawGather::add(Run& run, std::span<const Piece> pieces, std::uint64_t to_row) {
  const std::uint64_t end = to_row + run.rows;
  for (const Piece& piece : pieces) {
    const Chunk& chunk = *piece.chunk;
    if (!chunk.is_raw_for_good()) {
      RawRows rows(chunk);
      if (!rows) return false;
      pins_.push_back(std::move(rows));
    }
    if (&chunk.schema() != run.schema && !has_expected_layout(run, chunk.schema())) return false;
    run.segments.push_back({chunk.begin(), to_row, chunk.capacity(), piece.offset, piece.length});
    if (piece.length != 1) run.single_rows = false;
    to_row += piece.length;
  }
  if (to_row != end) run.has_padding = true;
  return true;
}

// The first chunk of a run determines the offsets of its columns; chunks of other writers often
// agree.
bool RawGather::has_expected_layout(Run& run, const ChunkSchema& schema) {
  const bool is_first = run.schema == nullptr;
  for (const std::size_t c : run.columns) {
    Column& column = columns_[c];
    if (column.row_bytes == 0) continue;  // of varying size, or of no bytes: not copied here
    if (schema.row_bytes(column.chunk_column) != column.row_bytes) return false;
    const std::size_t before = schema.bytes_before(column.chunk_column);
    if (!is_first && before != column.bytes_before) return false;
    column.bytes_before = before;
  }
  run.schema = &schema;
  return true;
}

template <typename Copy>
void RawGather::for_each(const Column& column, std::byte* to, Copy copy) const {
  const std::size_t before = column.bytes_before;
  const std::size_t row_bytes = column.row_bytes;
  for (const Segment& segment : runs_[column.run].segments) {
    copy(to + segment.to_row * row_bytes,
         segment.rows + segment.capacity * before + segment.offset * row_bytes, segment.length);
  }
}

void RawGather::copy(std::size_t c, std::byte* to) const {
  const Column& column = columns_[c];
  const Run& run = runs_[column.run];
  const std::size_t row_bytes = column.row_bytes;
  const auto one_row = [&]<std::size_t kSize>(std::integral_constant<std::size_t, kSize>) {
    for_each(column, to, [](std::byte* out, const std::byte* row, std::uint32_t) {
      std::memcpy(out, row, kSize);
    });
  };
  if (run.has_padding) {
    std::memset(to, 0, item_count_ * run.rows * row_bytes);
  }
  if (run.single_rows && row_bytes == 1) return one_row(std::integral_constant<std::size_t, 1>());
  if (run.single_rows && row_bytes == 4) return one_row(std::integral_constant<std::size_t, 4>());
  if (run.single_rows && row_bytes == 8) return one_row(std::integral_constant<std::size_t, 8>());
  for_each(column, to, [=](std::byte* out, const std::byte* row, std::uint32_t length) {
    copy_row(out, row, length * row_bytes);
  });
}

}  // namespace reverie
