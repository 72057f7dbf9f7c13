// Chunk: consecutive steps of a set of columns, shared by all items that refer to them.
//
//     storage   [ column 0: row 0 row 1 ... row capacity-1 ][ column 1: ... ] ... [ var bytes ]
//                                      ^ rows(): published, never written again
//
// A chunk is open while its one writer appends, and sealed afterwards: when it is full, flushed, or
// its episode has ended. Published rows never change, so readers in the same process may read an
// open chunk; only sealed chunks are encoded or leave the process.
//
// Columns of large elements come first in memory, so that column i starts at capacity * (bytes of
// one row of the columns before it), without padding: one multiplication finds it, and a chunk
// needs no table of columns.
//
// A chunk that was opened as compressible may lose its raw rows once it is sealed: its writer
// encodes the columns (record/compact.h) and replaces the rows by them. A reader of raw rows of
// such a chunk holds a RawRows meanwhile; the last RawRows releases the memory. Other chunks stay
// raw, or encoded, for good, and reading them costs nothing extra.
//
// A row of kBytes or kString is a cell {offset, size} into the bytes after the last column. A chunk
// never grows: when these bytes are used up, the writer seals it and opens the next.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/ref.h"
#include "reverie/base/status.h"
#include "reverie/codec/codec.h"
#include "reverie/record/byte_account.h"
#include "reverie/tensor/buffer.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

using ChunkKey = std::uint64_t;
using EpisodeId = std::uint64_t;

// The columns of a chunk and where their rows are. Immutable; shared by a writer's chunks.
class ChunkSchema final : public RefCounted<ChunkSchema> {
 public:
  // Requires every extent of every shape >= 0.
  explicit ChunkSchema(std::vector<TensorSpec> columns);

  std::size_t column_count() const { return columns_.size(); }
  const TensorSpec& column(std::size_t i) const { return columns_[i]; }
  std::span<const TensorSpec> columns() const { return columns_; }
  // Bytes of one row of column i (of its cell, if rows vary in size).
  std::size_t row_bytes(std::size_t i) const { return places_[i].row_bytes; }
  // Bytes of one row of all columns before column i.
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

// Identifies a chunk and its place in its stream.
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

  // Columns that were encoded together: their bytes, and where each column is in them.
  struct EncodedColumns {
    Buffer storage;
    std::vector<EncodedColumn> columns;
  };

  enum class Kind { kRaw, kCompressible };

  // An empty, open chunk of raw rows with `var_bytes` for rows of varying size.
  static Result<Ref<Chunk>> open(Ref<const ChunkSchema> schema, ChunkOrigin origin,
                                 std::uint32_t capacity, std::size_t var_bytes,
                                 Allocator& allocator, Kind kind = Kind::kRaw);
  // A sealed chunk over existing rows, laid out as in an open chunk of this schema with capacity
  // `rows`. Requires rows > 0, a schema without columns of varying size, and a storage of rows *
  // schema->step_bytes() bytes.
  static Ref<Chunk> of_rows(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t rows,
                            Buffer storage);
  // What the storage of an encoded chunk contains besides its columns.
  enum class Envelope : std::uint8_t {
    kNone,
    kWireMessage,  // the message that brought the chunk, to be sent on unchanged
  };

  // A sealed chunk whose columns stay encoded as they were sent. Requires one entry for each
  // column, each inside `storage`.
  static Ref<Chunk> encoded(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t rows,
                            Buffer storage, std::vector<EncodedColumn> columns,
                            Envelope envelope = Envelope::kNone);

  const ChunkSchema& schema() const { return *schema_; }
  const Ref<const ChunkSchema>& shared_schema() const { return schema_; }
  ChunkKey key() const { return origin_.key; }
  EpisodeId episode() const { return origin_.episode; }
  std::uint32_t first_step() const { return origin_.first_step; }
  std::uint32_t capacity() const { return capacity_; }
  // An encoded chunk has those of its columns. So a reader that may meet a compressible chunk asks
  // for them before it takes a RawRows, which it does not get once there are more.
  std::uint32_t rows() const {
    return is_raw() ? rows_.load(std::memory_order_acquire) : form_->rows;
  }
  // FAILED_PRECONDITION unless the rows below `row_end` are published. The newest items of a replay
  // buffer use the observation of a row that is not, so they cannot leave the process.
  Status check_published(std::uint32_t row_end) const;
  // Whether the rows are raw now. A compressible chunk may become encoded at any time unless a
  // RawRows is held; only its writer knows when.
  bool is_raw() const { return form_ == nullptr || !form_->is_encoded(); }
  // Whether it is raw as long as it lives: readers need no RawRows.
  bool is_raw_for_good() const { return form_ == nullptr; }
  bool is_compressible() const { return form_ != nullptr && form_->is_compressible; }
  // All memory that the chunk holds, its own header included.
  std::size_t size_bytes() const;
  // Memory of the raw rows, used or not. For the writer.
  std::size_t raw_bytes() const { return storage_.size_bytes(); }

  // --- For readers of a raw chunk. Requires a published row.
  const std::byte* row(std::size_t column, std::uint32_t row) const {
    return storage_.data() + capacity_ * schema_->bytes_before(column) +
           row * schema_->row_bytes(column);
  }
  // Where the rows begin: row() is this + capacity() * bytes_before + row * row_bytes, which a
  // gather computes from the schema.
  const std::byte* begin() const { return storage_.data(); }
  // The bytes of one row, of fixed or varying size.
  std::span<const std::byte> row_bytes(std::size_t column, std::uint32_t row) const;

  // --- For readers of an encoded chunk.
  const EncodedColumn& encoded_column(std::size_t column) const {
    return form_->encoded.columns[column];
  }
  std::span<const std::byte> encoded_bytes(std::size_t column) const {
    const EncodedColumn& c = encoded_column(column);
    return form_->encoded.storage.bytes().subspan(c.offset, c.size_bytes);
  }

  // Adds the places of `length` rows from `first` on, for ChunkMemory::prefetch(); more than these
  // if they are encoded, or vary in size.
  void add_places(std::uint32_t first, std::uint32_t length,
                  std::vector<std::span<const std::byte>>& out) const;

  // Adds all memory of the rows, or of the encoded columns.
  void add_storage(std::vector<std::span<const std::byte>>& out) const;

  // The whole message, if the chunk was kept as one of that kind; else empty.
  std::span<const std::byte> enveloped(Envelope envelope) const {
    if (form_ == nullptr || form_->envelope != envelope) return {};
    return form_->encoded.storage.bytes();
  }

  // --- For the writer of an open chunk. Whether `size_bytes` more bytes of varying rows
  // fit.
  bool has_var_room(std::size_t size_bytes) const {
    return size_bytes <= storage_.size_bytes() - var_begin() - var_used_;
  }
  // Copies one row in. Requires that it fits: row < capacity(), the size of the column's rows, and
  // room.
  void set_row(std::size_t column, std::uint32_t row, std::span<const std::byte> bytes);
  // Copies in contiguous rows of a column of fixed size. Requires that they fit.
  void set_rows(std::size_t column, std::uint32_t first, std::span<const std::byte> bytes);
  // Declares that rows below `rows` are complete. Requires rows <= capacity().
  void publish(std::uint32_t rows) { rows_.store(rows, std::memory_order_release); }
  // Seals a compressible chunk for good: its published rows are these columns from now on, and the
  // raw rows are released once no reader is left. Requires one entry for each column, each inside
  // the storage.
  void replace_rows(EncodedColumns encoded) { replace_rows(std::move(encoded), rows()); }
  // The same by columns of `rows` rows, of which the last were never raw. Requires rows >= rows().
  void replace_rows(EncodedColumns encoded, std::uint32_t rows);

  // --- The store's accounting: how many of its items refer to this chunk.
  // add_item() is true for the first item, remove_item() for the last.
  bool add_item() const { return item_count_.fetch_add(1, std::memory_order_relaxed) == 0; }
  bool remove_item() const { return item_count_.fetch_sub(1, std::memory_order_relaxed) == 1; }
  std::uint32_t item_count() const { return item_count_.load(std::memory_order_relaxed); }
  // For a table that holds one share in the chunk for all of its items, and counts them under its
  // own lock. It claims the chunk before it counts the first item: false if another table has
  // claimed it. Requires owner != 0. Thread-safe.
  bool claim(std::uint32_t owner) const {
    std::uint32_t now = owner_.load(std::memory_order_relaxed);
    return now == owner ||
           (now == 0 && owner_.compare_exchange_strong(now, owner, std::memory_order_acquire,
                                                       std::memory_order_relaxed));
  }
  // Owner only. True for the first item, or the last, which ends the claim.
  bool add_owners_item() const { return owners_item_count_++ == 0; }
  bool remove_owners_item() const {
    if (--owners_item_count_ > 0) return false;
    owner_.store(0, std::memory_order_release);
    return true;
  }
  // What a log of the store has written of the chunk; only the log uses it.
  struct LogMark {
    std::uint32_t file = 0;  // the file that it wrote to; the log numbers its files
    std::uint32_t number = 0;
    std::uint32_t rows : 31 = 0;
    std::uint32_t is_open : 1 = 0;  // there is room for more rows
  };
  // The log claims the chunk before it uses the mark, under its own lock, for as long as the chunk
  // lives: false if another log has claimed it. Requires log != 0. Thread-safe.
  bool claim_log(std::uint32_t log) const {
    std::uint32_t now = log_.load(std::memory_order_relaxed);
    return now == log || (now == 0 && log_.compare_exchange_strong(now, log));
  }
  LogMark& log_mark() const { return log_mark_; }

  // The number by which a checkpoint knows the chunk as one that it has written; 0: none. Numbers
  // are of this process, so one that another checkpoint gave is never taken for one's own.
  std::uint32_t checkpoint_mark() const { return checkpoint_mark_.load(std::memory_order_relaxed); }
  void set_checkpoint_mark(std::uint32_t mark) const {
    checkpoint_mark_.store(mark, std::memory_order_relaxed);
  }

  // Adds the chunk's bytes to an account, which then follows its size, or removes them.
  void charge(ByteAccount& account) const;
  void discharge(ByteAccount& account) const;

 private:
  friend class RefCounted<Chunk>;
  friend class RawRows;

  struct Charge {
    Ref<ByteAccount> account;
    int count;
  };
  // What a chunk has beyond a raw one if it is, or may become, encoded.
  struct Form {
    // Bits of `readers`: the columns are encoded; the raw rows were released. The other bits count
    // RawRows.
    static constexpr std::uint32_t kEncoded = 1u << 31;
    static constexpr std::uint32_t kGone = 1u << 30;

    bool is_compressible = false;
    Envelope envelope = Envelope::kNone;
    std::atomic<std::uint32_t> readers{0};
    EncodedColumns encoded;  // fixed once kEncoded is set
    std::uint32_t rows = 0;  // of these; fixed too
    Mutex mutex;
    std::size_t size_bytes REVERIE_GUARDED_BY(mutex) = 0;
    std::vector<Charge> charges REVERIE_GUARDED_BY(mutex);

    bool is_encoded() const { return (readers.load(std::memory_order_acquire) & kEncoded) != 0; }
  };

  Chunk(Ref<const ChunkSchema> schema, ChunkOrigin origin, std::uint32_t capacity, Buffer storage)
      : schema_(std::move(schema)),
        storage_(std::move(storage)),
        origin_(origin),
        capacity_(capacity) {}
  ~Chunk() = default;

  std::size_t var_begin() const { return capacity_ * schema_->step_bytes(); }
  void check_places(const EncodedColumns& encoded) const;
  // False if the raw rows were released.
  bool begin_reading() const;
  void end_reading() const;

  mutable std::atomic<std::uint32_t> item_count_{0};
  mutable std::atomic<std::uint32_t> owner_{0};  // 0: no table has claimed it
  mutable std::uint32_t owners_item_count_ = 0;  // guarded by the owner's lock
  mutable std::atomic<std::uint32_t> log_{0};    // 0: no log has claimed it
  mutable LogMark log_mark_;                     // guarded by the lock of that log
  Ref<const ChunkSchema> schema_;
  mutable Buffer storage_;  // of the raw rows; the last RawRows frees it
  std::unique_ptr<Form> form_;
  ChunkOrigin origin_;
  std::uint32_t capacity_;
  std::atomic<std::uint32_t> rows_{0};
  std::uint32_t var_used_ = 0;
  mutable std::atomic<std::uint32_t> checkpoint_mark_{0};
};

// Keeps a chunk's raw rows while a reader uses them. Empty if they were released: the chunk is
// encoded. Does not keep the chunk itself alive.
class RawRows {
 public:
  RawRows() = default;
  explicit RawRows(const Chunk& chunk) : is_raw_(chunk.is_raw_for_good()) {
    if (!is_raw_ && chunk.begin_reading()) {
      is_raw_ = true;
      chunk_ = &chunk;
    }
  }
  RawRows(RawRows&& other) noexcept
      : chunk_(std::exchange(other.chunk_, nullptr)),
        is_raw_(std::exchange(other.is_raw_, false)) {}
  RawRows& operator=(RawRows&& other) noexcept {
    std::swap(chunk_, other.chunk_);
    std::swap(is_raw_, other.is_raw_);
    return *this;
  }
  ~RawRows() {
    if (chunk_) chunk_->end_reading();
  }

  explicit operator bool() const { return is_raw_; }

 private:
  const Chunk* chunk_ = nullptr;  // null if nothing is counted
  bool is_raw_ = false;
};

}  // namespace reverie
