// TrajectoryWriter: turns a stream of steps into items that share their rows.
//
//     append(step) --> one row in the open chunk of each column group     (copied once)
//                      a chunk that is full is compressed where it pays   (on this thread)
//     create_item  --> pieces of those chunks, given to the service       (nothing copied)
//
// Columns with the same chunk length, num_keep_alive_refs and codec share chunks (a *group*). A
// step that lacks a column leaves its cell unset; only the writer knows that, and it refuses items
// over such cells. A column that first occurs later joins from its step on: the open chunk is
// sealed and the next one has the column.
//
// Steps are numbered from 0 over the writer's whole life, and numbers are never reused, so a
// reference that outlived its episode is recognised as expired and never means another row.
//
// If a queued item cannot be inserted later, the next append, create_item, flush or end_episode
// reports it once: that call does nothing else, and the writer stays usable.
//
// Only one thread at a time may use it; any thread may call close().
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/codec/codec.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/tensor/buffer.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// A column of this writer, numbered from 0 in the order of first use.
using ColumnId = std::uint32_t;
using StepIndex = std::uint64_t;

// How a column is cut into chunks.
struct ChunkOptions {
  // Steps that stay referable, the newest complete one included. Steps without a value in any
  // column of this group do not count. At least 1.
  std::uint32_t num_keep_alive_refs = 1;
  // Rows of a chunk, at least 1; may exceed num_keep_alive_refs. Without a value it is tuned to the
  // steps' size and to how many neighbouring rows items use (the rule is in client/chunk_tuner.h).
  std::optional<std::uint32_t> chunk_length = {};
  // How to encode a chunk's columns once it is sealed; the rule for kAuto is in
  // client/chunk_packer.h. A column stays raw in chunks where its codec does not make it smaller.
  CodecChoice codec = CodecChoice::kAuto;

  friend bool operator==(const ChunkOptions&, const ChunkOptions&) = default;
};

struct TrajectoryWriterOptions {
  ChunkOptions chunks = {};
  // Items created but not yet in their table; beyond it create_item waits. At least 1.
  std::size_t max_in_flight_items = 1'000;
  // Check signatures when an item is created, not only when it reaches its table.
  bool validate_items = true;
  Allocator* allocator = nullptr;          // for chunks; null: chunk_allocator(service)
  Clock* clock = nullptr;                  // of deadlines; null: the system's
  std::optional<std::uint64_t> seed = {};  // for keys of items, chunks and episodes
};

// One column's value in a step.
struct ColumnValue {
  ColumnId column = 0;
  TensorView value;
};

// Steps [begin, begin + length) of a column.
struct StepRange {
  StepIndex begin = 0;
  std::uint32_t length = 0;
};

// One column of a new item: rows in the order of the ranges.
struct TrajectoryColumn {
  std::string_view name;  // path in the item's nest
  ColumnId column = 0;
  std::span<const StepRange> ranges;
  bool squeezed = false;  // exactly one row
  bool stepwise = false;  // see LayoutColumn
};

struct NewItem {
  std::string_view table;
  std::optional<double> priority = {};  // none: the largest that the table has seen
  std::span<const TrajectoryColumn> columns;
  std::string_view structure;  // see Layout::structure
  std::int64_t version = 0;
};

class TrajectoryWriter final {
 public:
  // INVALID_ARGUMENT for a zero bound.
  static Result<std::unique_ptr<TrajectoryWriter>> open(std::shared_ptr<ReplayService> service,
                                                        TrajectoryWriterOptions options);
  // Unless closed, flushes for at most 1 s; logs a warning with the number of lost items.
  ~TrajectoryWriter();
  TrajectoryWriter(const TrajectoryWriter&) = delete;
  TrajectoryWriter& operator=(const TrajectoryWriter&) = delete;

  // The column of that path, created if it is new. Its first value sets its type and shape.
  ColumnId column(std::string_view name);
  // Options for one column, existing or future. If the options differ, the existing cells of the
  // column expire. FAILED_PRECONDITION while it has steps that were not flushed; INVALID_ARGUMENT
  // for zero bounds.
  Status configure(std::string_view name, ChunkOptions options);

  // Writes one step, or a part of it: a partial step stays open, and the next append fills the same
  // row. Either everything is written or nothing. INVALID_ARGUMENT, naming the column, if its type
  // or shape differs from before, or it occurs twice in a step; the writer stays usable.
  Status append(std::span<const ColumnValue> values, bool partial_step);

  // Creates an item over appended cells, the open step's included. It is in its table on return
  // unless the limiter holds it back; then it is queued, in order. Waits as may_wait() says, until
  // `deadline`. INVALID_ARGUMENT, naming the column, for an expired or
  // unset cell, no rows, a NaN priority or another signature; NOT_FOUND for the table.
  Status create_item(const NewItem& item, TimePoint deadline, const WaitOptions& wait);
  // As create_item(), for a caller that makes several items at once: leaves losses to a later call,
  // and does not wait for room in the queue.
  Status create_one_of_many(const NewItem& item, TimePoint deadline, const WaitOptions& wait);
  // Reports what create_item() would report before it does anything.
  Status take_losses();
  // Whether create_item() for that table may wait: for room in the queue, or, the first time, for
  // the table's signature.
  bool may_wait(std::string_view table) const;

  // Waits until at most `max_pending` items are queued. DEADLINE_EXCEEDED says how many are queued.
  Status flush(std::size_t max_pending, TimePoint deadline, const WaitOptions& wait);

  // Flushes, completes an open step, seals the chunks, and begins the next episode. With
  // clear_buffers the cells expire; else items may span the border. If the flush fails, the episode
  // continues unchanged.
  Status end_episode(bool clear_buffers, TimePoint deadline, const WaitOptions& wait);

  // Cancels what is queued. Idempotent. Every later call is FAILED_PRECONDITION.
  void close();
  bool closed() const;

  // --- Looking back, for histories. The number of the next step, or of the open
  // one.
  StepIndex next_step() const;
  bool step_is_open() const;
  StepIndex episode_begin() const;    // first step of this episode
  std::size_t episode_steps() const;  // complete steps
  std::size_t column_count() const;
  // Require column < column_count().
  std::string_view column_name(ColumnId column) const;
  // Null before the column's first value.
  const TensorSpec* column_spec(ColumnId column) const;
  // Whether the cell was set and has not expired.
  bool has_cell(ColumnId column, StepIndex step) const;
  // The bytes of such a cell, valid until the next call. FAILED_PRECONDITION if there is none.
  Result<TensorView> cell(ColumnId column, StepIndex step) const;

  // The number of created items whose insertion is not confirmed yet.
  std::size_t pending_items() const;

 private:
  class State;
  explicit TrajectoryWriter(std::unique_ptr<State> state);

  std::unique_ptr<State> state_;
};

}  // namespace reverie
