// Tested in batch_test.cc.
#include "reverie/gather/batch_plan.h"

#include <algorithm>
#include <array>

namespace reverie {
namespace {

// Pieces beyond the first are not stored in their item, so they are prefetched some items ahead.
constexpr std::size_t kPiecesAhead = 16;

// Names the first relevant difference between two items' columns; ok if there is none. Pieces may
// be cut differently.
Status check_alike(const Layout& first, const Layout& other, std::size_t item) {
  const auto a = first.columns();
  const auto b = other.columns();
  if (a.size() != b.size()) {
    return invalid_argument(
        "item {} of the batch has {} columns but item 0 has {}; sample tables "
        "of different items apart",
        item, b.size(), a.size());
  }
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(a[i].spec == b[i].spec)) {
      return invalid_argument(
          "column {} is {} in item {} of the batch but {} in item 0; a batch "
          "needs items that are alike",
          i, spec_text(b[i].spec), item, spec_text(a[i].spec));
    }
    if (a[i].squeezed != b[i].squeezed) {
      return invalid_argument(
          "column '{}' is squeezed in some items of the batch (item {}: {}) "
          "but not in others",
          a[i].spec.name, item, b[i].squeezed);
    }
  }
  if (first.structure() != other.structure()) {
    return invalid_argument("item {} of the batch is nested as {} but item 0 as {}", item,
                            other.structure(), first.structure());
  }
  return {};
}

// The layouts that match the first one. Items of one writer share a few, so a small cache is
// enough: an evicted layout is only compared again.
class AlikeLayouts {
 public:
  bool contains(const Layout* layout) const { return slots_[slot(layout)] == layout; }
  void add(const Layout* layout) { slots_[slot(layout)] = layout; }

 private:
  static constexpr std::size_t kSlots = 64;
  static std::size_t slot(const Layout* layout) {
    return (reinterpret_cast<std::uintptr_t>(layout) * 0x9e3779b97f4a7c15u) >> 58;
  }
  std::array<const Layout*, kSlots> slots_{};
};

struct Extent {
  std::uint32_t least = ~0u;
  std::uint32_t most = 0;
  void add(std::uint32_t rows) {
    least = std::min(least, rows);
    most = std::max(most, rows);
  }
  bool is_empty() const { return least > most; }
};

std::vector<std::int64_t> longest_columns(std::span<const TrajectoryView> items) {
  std::vector<std::int64_t> lengths;
  lengths.reserve(items.size());
  for (const TrajectoryView& item : items) {
    std::uint32_t longest = 0;
    for (const LayoutColumn& column : item.layout->columns()) {
      longest = std::max(longest, item.length(column));
    }
    lengths.push_back(longest);
  }
  return lengths;
}

}  // namespace

Shape PlannedColumn::shape(std::size_t item_count) const {
  Shape shape;
  shape.reserve(2 + like->spec.shape.size());
  shape.push_back(static_cast<std::int64_t>(item_count));
  if (!like->squeezed) shape.push_back(rows);
  shape.insert(shape.end(), like->spec.shape.begin(), like->spec.shape.end());
  return shape;
}

Result<BatchPlan> BatchPlan::make(std::span<const TrajectoryView> items, bool pad) {
  const Layout& first = *items.front().layout;
  const std::size_t column_count = first.columns().size();
  AlikeLayouts alike;
  alike.add(&first);
  Extent of_one_piece;  // in an item of one piece all columns have its length
  std::vector<Extent> extents(column_count);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i + kPiecesAhead < items.size()) {
      const TrajectoryView& later = items[i + kPiecesAhead];
      if (later.layout->piece_count() > 1) __builtin_prefetch(later.many);
    }
    const TrajectoryView& item = items[i];
    if (!alike.contains(item.layout)) {
      REVERIE_RETURN_IF_ERROR(check_alike(first, *item.layout, i));
      alike.add(item.layout);
    }
    if (item.layout->piece_count() == 1) {
      of_one_piece.add(item.one.length);
    } else {
      const auto columns = item.layout->columns();
      for (std::size_t c = 0; c < column_count; ++c) extents[c].add(item.length(columns[c]));
    }
  }

  BatchPlan plan;
  plan.columns.reserve(column_count);
  for (std::size_t c = 0; c < column_count; ++c) {
    Extent extent = extents[c];
    if (!of_one_piece.is_empty()) {
      extent.add(of_one_piece.least);
      extent.add(of_one_piece.most);
    }
    const LayoutColumn& like = first.columns()[c];
    if (extent.least != extent.most) {
      if (!pad) {
        return invalid_argument(
            "column '{}' has {} rows in some items of the batch and {} in "
            "others; sample items of one length, or ask for padding",
            like.spec.name, extent.least, extent.most);
      }
    }
    const auto count = static_cast<std::size_t>(element_count(like.spec.shape));
    plan.columns.push_back({&like, count, count * dtype_size_bytes(like.spec.dtype), extent.most,
                            has_variable_size(like.spec.dtype)});
  }
  if (pad) plan.lengths = longest_columns(items);
  return plan;
}

}  // namespace reverie
