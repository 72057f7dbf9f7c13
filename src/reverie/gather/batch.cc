#include "reverie/gather/batch.h"

#include <algorithm>
#include <cstring>

#include "reverie/gather/batch_plan.h"
#include "reverie/gather/copy_row.h"
#include "reverie/gather/encoded_gather.h"
#include "reverie/gather/raw_gather.h"
#include "reverie/gather/row_reader.h"
#include "reverie/record/readable_rows.h"

namespace reverie {
namespace {

using ElementSize = std::uint32_t;

// One column of the batch while it is filled.
struct Target {
  std::byte* begin;
  std::size_t row_bytes;
  std::uint32_t rows;
};

Status copy_item(const TrajectoryView& item, std::span<const Target> targets, std::size_t index,
                 EncodedGather& encoded) {
  const std::span<const LayoutColumn> columns = item.layout->columns();
  const std::span<const Piece> pieces = item.pieces();
  for (std::size_t c = 0; c < targets.size(); ++c) {
    const Target& target = targets[c];
    if (!target.begin) continue;
    const LayoutColumn& column = columns[c];
    const std::size_t item_bytes = target.rows * target.row_bytes;
    std::byte* to = target.begin + index * item_bytes;
    std::byte* const end = to + item_bytes;
    for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
      const Piece& piece = pieces[p];
      const std::size_t size = piece.length * target.row_bytes;
      if (const RawRows raw(*piece.chunk); raw) {
        copy_row(to, piece.chunk->row(column.chunk_column, piece.offset), size);
      } else {
        REVERIE_RETURN_IF_ERROR(encoded.add(piece, column.chunk_column, to));
      }
      to += size;
    }
    if (to != end) std::memset(to, 0, static_cast<std::size_t>(end - to));
  }
  return {};
}

// Gathers any items, one after the other.
Status gather(std::span<const TrajectoryView> items, std::span<const Target> targets,
              ExternalFiles* files) {
  EncodedGather encoded(files);
  for (std::size_t i = 0; i < items.size(); ++i) {
    REVERIE_RETURN_IF_ERROR(copy_item(items[i], targets, i, encoded));
  }
  return encoded.finish();
}

// Calls visit(row) for each row of column `c` of an item, padding excluded.
template <typename Visit>
Status for_each_row(const TrajectoryView& item, std::size_t c, RowReader& reader, Visit visit) {
  const LayoutColumn& column = item.layout->columns()[c];
  for (std::size_t p = column.piece_begin; p < column.piece_end; ++p) {
    const Piece& piece = item.pieces()[p];
    for (std::uint32_t r = 0; r < piece.length; ++r) {
      REVERIE_ASSIGN_OR_RETURN(const RowSpan row,
                               reader.row(*piece.chunk, column.chunk_column, piece.offset + r));
      visit(row);
    }
  }
  return {};
}

// A row that is unset, or is padding, has elements without bytes.
Status gather_varying(std::span<const TrajectoryView> items, std::size_t c,
                      const PlannedColumn& column, RowReader& reader, Allocator& allocator,
                      Buffer& out) {
  const std::size_t empty_bytes = column.element_count * sizeof(ElementSize);
  std::size_t size_bytes = 0;
  for (const TrajectoryView& item : items) {
    std::size_t rows = 0;
    REVERIE_RETURN_IF_ERROR(for_each_row(item, c, reader, [&](RowSpan row) {
      size_bytes += row.empty() ? empty_bytes : row.size();
      ++rows;
    }));
    size_bytes += (column.rows - rows) * empty_bytes;
  }
  REVERIE_ASSIGN_OR_RETURN(out, allocator.allocate(size_bytes));
  std::byte* to = out.data();
  const auto put_empty = [&] {
    if (empty_bytes > 0) std::memset(to, 0, empty_bytes);
    to += empty_bytes;
  };
  for (const TrajectoryView& item : items) {
    std::size_t rows = 0;
    REVERIE_RETURN_IF_ERROR(for_each_row(item, c, reader, [&](RowSpan row) {
      ++rows;
      if (row.empty()) return put_empty();
      std::memcpy(to, row.data(), row.size());
      to += row.size();
    }));
    for (; rows < column.rows; ++rows) put_empty();
  }
  return {};
}

// The bytes of a fixed column of the batch. The factors may come from another process.
Result<std::size_t> column_bytes(const PlannedColumn& column, std::size_t item_count) {
  std::size_t size = 0;
  if (__builtin_mul_overflow(item_count, std::size_t{column.rows}, &size) ||
      __builtin_mul_overflow(size, column.row_bytes, &size)) {
    return resource_exhausted(
        "column '{}' of {} items with {} rows of {} bytes is larger than "
        "memory; sample fewer items at once",
        column.like->spec.name, item_count, column.rows, column.row_bytes);
  }
  return size;
}

bool is_reusable(const BatchColumn& old, const PlannedColumn& column, std::size_t item_count,
                 std::size_t size_bytes) {
  const TensorSpec& like = column.like->spec;
  std::span<const std::int64_t> shape = old.spec.shape;
  const std::size_t outer = column.like->squeezed ? 1 : 2;
  return old.bytes.size_bytes() == size_bytes && old.spec.dtype == like.dtype &&
         shape.size() == outer + like.shape.size() &&
         shape[0] == static_cast<std::int64_t>(item_count) &&
         (outer == 1 || shape[1] == column.rows) &&
         std::ranges::equal(shape.subspan(outer), like.shape) && old.spec.name == like.name;
}

}  // namespace

std::size_t gathered_bytes(const SampleBatch& samples) {
  if (samples.empty()) return 0;
  constexpr std::size_t kTextBytes = 64;
  std::size_t size = 0;
  const TrajectoryView& first = samples.trajectories()[0];
  for (const LayoutColumn& column : first.layout->columns()) {
    const std::size_t element =
        has_variable_size(column.spec.dtype) ? kTextBytes : dtype_size_bytes(column.spec.dtype);
    size +=
        static_cast<std::size_t>(first.length(column) * element_count(column.spec.shape)) * element;
  }
  return size * samples.size();
}

Result<Batch> assemble(const SampleBatch& samples, const BatchOptions& options) {
  Batch batch;
  REVERIE_RETURN_IF_ERROR(assemble_into(samples, options, batch));
  return batch;
}

Status assemble_into(const SampleBatch& samples, const BatchOptions& options, Batch& batch) {
  return assemble_into(samples.trajectories(), options, batch);
}

Status assemble_into(std::span<const TrajectoryView> items, const BatchOptions& options,
                     Batch& batch) {
  if (items.empty()) {
    return invalid_argument("a batch of no items has no arrays; sample at least one item");
  }
  Allocator& allocator = options.allocator ? *options.allocator : Allocator::heap();
  REVERIE_ASSIGN_OR_RETURN(BatchPlan plan, BatchPlan::make(items, options.pad));

  RowReader reader;
  std::vector<Target> targets;
  targets.reserve(plan.columns.size());
  batch.columns.resize(plan.columns.size());
  for (std::size_t c = 0; c < plan.columns.size(); ++c) {
    const PlannedColumn& column = plan.columns[c];
    BatchColumn& out = batch.columns[c];
    targets.push_back({nullptr, column.row_bytes, column.rows});
    if (column.is_variable) {
      REVERIE_RETURN_IF_ERROR(gather_varying(items, c, column, reader, allocator, out.bytes));
    } else {
      REVERIE_ASSIGN_OR_RETURN(const std::size_t size, column_bytes(column, items.size()));
      const bool reuse = is_reusable(out, column, items.size(), size);
      if (!reuse) {
        REVERIE_ASSIGN_OR_RETURN(out.bytes, allocator.allocate(size));
      }
      targets.back().begin = out.bytes.data();
      if (reuse) continue;
    }
    out.spec = {column.like->spec.name, column.like->spec.dtype, column.shape(items.size())};
  }
  batch.lengths = std::move(plan.lengths);
  if (batch.structure != items.front().layout->structure()) {
    batch.structure = items.front().layout->structure();
  }
  RawGather raw;
  if (raw.find(items, plan)) {
    for (std::size_t c = 0; c < targets.size(); ++c) {
      if (targets[c].begin) raw.copy(c, targets[c].begin);
    }
  } else {
    REVERIE_RETURN_IF_ERROR(gather(items, targets, options.files));
  }
  return check_readable(items);
}

}  // namespace reverie
