#include "reverie/record/trajectory.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "reverie/tensor/block_memory.h"

namespace reverie {
namespace {

// Whether a column of an item matches a signature. Allocates nothing, since it is called for each
// item.
bool matches(const TrajectoryView& trajectory, const LayoutColumn& column,
             const TensorSpec& expected) {
  if (!reads_as(column.spec.dtype, expected.dtype)) return false;
  if (column.stepwise && shape_matches(expected.shape, column.spec.shape)) return true;
  std::span<const std::int64_t> pattern = expected.shape;
  if (!column.squeezed) {
    if (pattern.empty()) return false;
    if (pattern[0] >= 0 && pattern[0] != trajectory.length(column)) return false;
    pattern = pattern.subspan(1);
  }
  return shape_matches(pattern, column.spec.shape);
}

}  // namespace

Layout::Layout(std::vector<LayoutColumn> columns, std::string structure, std::uint64_t tag)
    : columns_(std::move(columns)), structure_(std::move(structure)), tag_(tag), piece_count_(0) {
  for (const LayoutColumn& column : columns_) {
    piece_count_ = std::max<std::uint32_t>(piece_count_, column.piece_end);
  }
}

Trajectory::Trajectory(Ref<const Layout> layout, std::span<const Piece> pieces) {
  REVERIE_CHECK(pieces.size() == layout->piece_count() && !pieces.empty());
  for (const Piece& piece : pieces) piece.chunk->add_ref();
  if (pieces.size() == 1) {
    view_.one = pieces[0];
  } else {
    auto* const many = BlockAllocator<Piece>().allocate(pieces.size());
    std::uninitialized_copy(pieces.begin(), pieces.end(), many);
    view_.many = many;
  }
  view_.layout = layout.release();
}

Trajectory Trajectory::copy() const {
  if (empty()) return {};
  return Trajectory(Ref<const Layout>::share(view_.layout), pieces());
}

void Trajectory::clear() {
  if (empty()) return;
  for (const Piece& piece : pieces()) piece.chunk->release();
  if (const std::size_t count = view_.layout->piece_count(); count > 1) {
    BlockAllocator<Piece>().deallocate(const_cast<Piece*>(view_.many), count);
  }
  view_.layout->release();
}

Status check_trajectory(const TrajectoryView& trajectory) {
  for (const LayoutColumn& column : trajectory.layout->columns()) {
    if (column.piece_begin >= column.piece_end) {
      return invalid_argument("column '{}' of the item has no rows; give it at least one",
                              column.spec.name);
    }
    for (const Piece& piece :
         trajectory.pieces().subspan(column.piece_begin, column.piece_end - column.piece_begin)) {
      const Chunk& chunk = *piece.chunk;
      if (std::uint64_t{piece.offset} + piece.length > chunk.capacity() || piece.length == 0) {
        return invalid_argument(
            "column '{}' refers to rows {}..{} of a chunk of {} rows; a slice must be non-empty "
            "and "
            "lie inside its chunk",
            column.spec.name, piece.offset, std::uint64_t{piece.offset} + piece.length,
            chunk.capacity());
      }
      if (column.chunk_column >= chunk.schema().column_count()) {
        return invalid_argument("column '{}' refers to column {} of a chunk of {} columns",
                                column.spec.name, column.chunk_column,
                                chunk.schema().column_count());
      }
      const TensorSpec& stored = chunk.schema().column(column.chunk_column);
      if (!reads_as(stored.dtype, column.spec.dtype) || stored.shape != column.spec.shape) {
        return invalid_argument("column '{}' is {} {}, but its chunk holds {} {}", column.spec.name,
                                dtype_name(column.spec.dtype), shape_text(column.spec.shape),
                                dtype_name(stored.dtype), shape_text(stored.shape));
      }
    }
    if (column.squeezed && trajectory.length(column) != 1) {
      return invalid_argument(
          "column '{}' is squeezed but has {} rows; only one row can be squeezed", column.spec.name,
          trajectory.length(column));
    }
  }
  return {};
}

Status check_signature(const TrajectoryView& trajectory, const Signature& signature) {
  const auto columns = trajectory.layout->columns();
  if (columns.size() != signature.columns.size()) {
    std::string expected;
    for (const TensorSpec& spec : signature.columns) expected += "\n  " + spec_text(spec);
    return invalid_argument("the item has {} columns but the table's signature has {}:{}",
                            columns.size(), signature.columns.size(), expected);
  }
  for (std::size_t i = 0; i < columns.size(); ++i) {
    const LayoutColumn& column = columns[i];
    const TensorSpec& expected = signature.columns[i];
    if (!matches(trajectory, column, expected)) {
      TensorSpec actual = column.spec;
      if (!column.squeezed) actual.shape.insert(actual.shape.begin(), trajectory.length(column));
      return invalid_argument("column {} of the item is {} but the table's signature says {}", i,
                              spec_text(actual), spec_text(expected));
    }
  }
  return {};
}

}  // namespace reverie
