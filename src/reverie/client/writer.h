// Writer: items over the last steps, all columns alike.
//
// The older and simpler of the two writers, a thin layer over TrajectoryWriter: every step has the
// same columns, an item is the last n steps, and a writer's steps are one episode.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "reverie/client/trajectory_writer.h"

namespace reverie {

struct WriterOptions {
  std::uint32_t max_sequence_length = 1;  // of an item, in steps. At least 1
  // Rows of a chunk, from 1 to max_sequence_length; 10 or max_sequence_length, the smaller, if
  // absent.
  std::optional<std::uint32_t> chunk_length = {};
  std::size_t max_in_flight_items = 25;  // At least 1
  Allocator* allocator = nullptr;
  Clock* clock = nullptr;
  std::optional<std::uint64_t> seed = {};
};

// One thread at a time; close() may come from any.
class Writer {
 public:
  // INVALID_ARGUMENT for bounds outside of what WriterOptions says.
  static Result<std::unique_ptr<Writer>> open(std::shared_ptr<ReplayService> service,
                                              const WriterOptions& options);

  // See TrajectoryWriter.
  ColumnId column(std::string_view name) { return writer_->column(name); }
  // Writes one step. INVALID_ARGUMENT when it has not the columns of the first step, or when a
  // column has another type or shape; the writer stays usable.
  Status append(std::span<const ColumnValue> values);
  // Creates an item over the last `num_timesteps` steps. INVALID_ARGUMENT when these are none, more
  // than were appended, or more than max_sequence_length; else as TrajectoryWriter::create_item.
  // `structure` is how the first step was nested.
  Status create_item(std::string_view table, std::uint32_t num_timesteps, double priority,
                     std::string_view structure, TimePoint deadline, const WaitOptions& wait);

  Status flush(TimePoint deadline, const WaitOptions& wait) {
    return writer_->flush(0, deadline, wait);
  }
  // Flushes, then closes, whatever the flush said.
  Status close(TimePoint deadline, const WaitOptions& wait);
  bool closed() const { return writer_->closed(); }

  std::size_t pending_items() const { return writer_->pending_items(); }

 private:
  Writer(std::unique_ptr<TrajectoryWriter> writer, std::uint32_t max_sequence_length)
      : writer_(std::move(writer)), max_sequence_length_(max_sequence_length) {}

  std::unique_ptr<TrajectoryWriter> writer_;
  std::uint32_t max_sequence_length_;
  std::vector<ColumnId> step_;  // the columns of a step, as the first one had them
  std::vector<TrajectoryColumn> columns_;
};

}  // namespace reverie
