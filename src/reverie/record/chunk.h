// Chunk: consecutive steps of a set of columns, shared by all items that refer to them.
//
//     storage   [ column 0: row 0 row 1 ... row capacity-1 ][ column 1: ... ] ... [ var bytes ]
//                                      ^ rows(): published, never written again
//
// A chunk is open while its one writer appends and sealed afterwards (full, flushed or at the
// episode's end). Published rows never change, so a reader in the same process may look at an
// open chunk; only sealed ones are encoded or leave the process.
//
// Columns of large elements come first in memory, so that column i starts at capacity * (bytes
// of one row of the columns before it) with no padding: one multiplication finds it, and a
// chunk needs no table of columns.
//
// A row of kBytes or kString is a cell {offset, size} into the bytes behind the last column. A
// chunk never grows: when they are used up the writer seals it and opens the next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/codec/codec.h"
#include "reverie/tensor/buffer.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

using ChunkKey = std::uint64_t;
using EpisodeId = std::uint64_t;

// The columns of a chunk and where their rows lie. Immutable; shared by a writer's chunks.
class ChunkSchema final : public RefCounted<ChunkSchema> {
 public:
  // Requires every extent of every shape >= 0.
  explicit ChunkSchema(std::vector<TensorSpec> columns);

  std::size_t column_count() const { return columns_.size(); }
  const TensorSpec& column(std::size_t i) const { return columns_[i]; }
  std::span<const TensorSpec> columns() const { return columns_; }
  // Bytes of one row of column i (of its cell, where rows vary in size).
  std::size_t row_bytes(std::size_t i) const { return places_[i].row_bytes; }
  // Bytes of one row of all columns that lie before column i.
  std::size_t bytes_before(std::size_t i) const { return places_[i].bytes_before; }
  // Bytes of one row of all columns.
  std::size_t step_bytes() const { return step_bytes_; }
  bool is_variable(std::size_t i) const { return has_variable_size(columns_[i].dtype); }
  bool has_variable() const { return has_variable_; }

 private:
  struct Place {
    std::size_t row_bytes;
    std::size_t bytes_before;
  };
  std::vector<TensorSpec> columns_;
  std::vector<Place> places_;
  std::size_t step_bytes_ = 0;
  bool has_variable_ = false;
};

// What identifies a chunk and places it in its stream.
struct ChunkOrigin {
  ChunkKey key = 0;
  EpisodeId episode = 0;
  std::uint32_t first_step = 0;  // of row 0, counted within the episode
};

// Thread-safe for readers; one thread writes.
class Chunk final : public RefCounted<Chunk> {
 public:
  // One column's bytes as some writer encoded them.
  struct EncodedColumn {
    CodecId codec = CodecId::kRaw;
    std::size_t offset = 0;  // into the storage
    std::size_t size_bytes = 0;
  };

  // An empty, open chunk of raw rows with `var_bytes` for rows of varying size.
  static Result<Ref<Chunk>> open(Ref<const ChunkSchema> schema, ChunkOrigin origin,
                                 std::uint32_t capacity, std::size_t var_bytes,
                                 Allocator& allocator);
  // A sealed chunk whose columns stay as they were sent. Requires one entry a column, each
  // inside `storage`.
  static Ref<Chunk> encoded(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t rows,
                            Buffer storage, std::vector<EncodedColumn> columns);

  const ChunkSchema& schema() const { return *schema_; }
  const Ref<const ChunkSchema>& shared_schema() const { return schema_; }
  ChunkKey key() const { return origin_.key; }
  EpisodeId episode() const { return origin_.episode; }
  std::uint32_t first_step() const { return origin_.first_step; }
  std::uint32_t capacity() const { return capacity_; }
  std::uint32_t rows() const { return rows_.load(std::memory_order_acquire); }
  bool is_raw() const { return encoded_ == nullptr; }
  // All memory that the chunk holds, its own header included.
  std::size_t size_bytes() const;

  // --- Readers of a raw chunk: a cell that was set before the reader learnt of it.
  const std::byte* row(std::size_t column, std::uint32_t row) const {
    return storage_.data() + capacity_ * schema_->bytes_before(column) +
           row * schema_->row_bytes(column);
  }
  // Where the rows begin: row() is this + capacity() * bytes_before + row * row_bytes, which a
  // gather computes with the schema's numbers at hand.
  const std::byte* begin() const { return storage_.data(); }
  // The bytes of one row, wherever they lie.
  std::span<const std::byte> row_bytes(std::size_t column, std::uint32_t row) const;

  // --- Readers of an encoded chunk.
  const EncodedColumn& encoded_column(std::size_t column) const { return (*encoded_)[column]; }
  std::span<const std::byte> encoded_bytes(std::size_t column) const {
    const EncodedColumn& c = encoded_column(column);
    return storage_.bytes().subspan(c.offset, c.size_bytes);
  }

  // --- The writer of an open chunk.
  // Whether `size_bytes` more bytes of varying rows fit.
  bool has_var_room(std::size_t size_bytes) const {
    return size_bytes <= storage_.size_bytes() - var_begin() - var_used_;
  }
  // Copies one row in. Requires that it fits: row < capacity(), the size of the column's rows, and
  // room.
  void set_row(std::size_t column, std::uint32_t row, std::span<const std::byte> bytes);
  // Rows below `rows` are complete. Requires rows <= capacity().
  void publish(std::uint32_t rows) { rows_.store(rows, std::memory_order_release); }

  // --- The store's books: how many of its items refer to this chunk.
  // True for the first, and for the last.
  bool add_item() const { return item_count_.fetch_add(1, std::memory_order_relaxed) == 0; }
  bool remove_item() const { return item_count_.fetch_sub(1, std::memory_order_relaxed) == 1; }
  std::uint32_t item_count() const { return item_count_.load(std::memory_order_relaxed); }

 private:
  friend class RefCounted<Chunk>;
  Chunk(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t capacity, Buffer storage)
      : schema_(std::move(schema)),
        storage_(std::move(storage)),
        origin_(origin),
        capacity_(capacity) {}
  ~Chunk() = default;

  std::size_t var_begin() const { return capacity_ * schema_->step_bytes(); }

  mutable std::atomic<std::uint32_t> item_count_{0};
  Ref<const ChunkSchema> schema_;
  Buffer storage_;
  std::unique_ptr<std::vector<EncodedColumn>> encoded_;
  ChunkOrigin origin_;
  std::uint32_t capacity_;
  std::atomic<std::uint32_t> rows_{0};
  std::uint32_t var_used_ = 0;
};

}  // namespace reverie
