// StructuredWriter: makes items of its steps by itself, wherever a pattern fits.
//
//     append(step) --> the leaves that a pattern refers to      --> TrajectoryWriter
//                      each pattern whose conditions hold, once a step --> create_item
//
// After each append, partial ones too, and at an episode's end, the patterns are tried in order.
// One that has made an item of the newest step is not tried again on it. A pattern over rows that
// are not there (too few steps, a leaf that was left out) is skipped, and all of them are while
// the newest step has none of the leaves that they use.
//
// Leaves that no pattern refers to are not written; those of conditions alone are only looked at.
//
// Source: dm-reverb 0.14's StructuredWriter, as observed. Differs: a leaf of a condition that is no
// whole number is refused, where Reverb's condition never holds; so is a step with fewer leaves
// than a pattern refers to; an append waits where max_in_flight_items are queued.
//
// One thread at a time; close() may come from any.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/client/trajectory_writer.h"
#include "reverie/structured/item_pattern.h"

namespace reverie {

// The value of one leaf in a step.
struct LeafValue {
  LeafIndex leaf = 0;
  TensorView value;
};

class StructuredWriter final {
 public:
  // `options` as for a TrajectoryWriter, except that num_keep_alive_refs is at least what the
  // patterns reach back, and max_in_flight_items at least one for each pattern. INVALID_ARGUMENT as
  // check_patterns.
  static Result<std::unique_ptr<StructuredWriter>> open(std::shared_ptr<ReplayService> service,
                                                        std::vector<ItemPattern> patterns,
                                                        TrajectoryWriterOptions options);
  StructuredWriter(const StructuredWriter&) = delete;
  StructuredWriter& operator=(const StructuredWriter&) = delete;

  // What the leaves of a step are called, in flat order. Once, before the first append.
  // INVALID_ARGUMENT when a pattern refers to a leaf beyond them.
  Status set_leaves(std::vector<std::string> names);
  // Zero before set_leaves().
  std::size_t leaf_count() const { return leaves_.size(); }
  // Whether a value of that leaf is looked at; others may be left out of an append.
  bool uses(LeafIndex leaf) const { return leaves_[leaf].is_written || leaves_[leaf].is_tested; }

  // Writes one step, or a part of it, then makes the items. Leaves without a value have none in
  // this step. First waits until every pattern's item has room in the queue: when that fails
  // nothing was written. INVALID_ARGUMENT, naming the leaf, as TrajectoryWriter::append, and where
  // a condition's leaf is not a single whole number; FAILED_PRECONDITION for a leaf twice in a
  // step: nothing was written. An item that cannot be made leaves the others alone; its error is
  // returned, and the step was written. Requires set_leaves(), and leaves that it named.
  Status append(std::span<const LeafValue> values, bool partial_step, TimePoint deadline,
                const WaitOptions& wait);

  // Waits until at most `max_pending` items are queued. DEADLINE_EXCEEDED says how many are.
  Status flush(std::size_t max_pending, TimePoint deadline, const WaitOptions& wait) {
    return writer_->flush(max_pending, deadline, wait);
  }

  // Makes the items of patterns that wait for the end, then as TrajectoryWriter::end_episode. May
  // be called again when it fails: an item is made once.
  Status end_episode(bool clear_buffers, TimePoint deadline, const WaitOptions& wait);

  bool step_is_open() const { return writer_->step_is_open(); }
  std::size_t pending_items() const { return writer_->pending_items(); }
  // Whether an append or end_episode now may have to wait.
  bool may_wait() const { return writer_->pending_items() > queued_max_; }

  // See TrajectoryWriter.
  void close() { writer_->close(); }
  bool closed() const { return writer_->closed(); }

 private:
  static constexpr StepIndex kNoStep = ~StepIndex{0};

  struct Leaf {
    std::string name;
    bool is_written = false;
    bool is_tested = false;
    ColumnId column = 0;
    StepIndex given_in = kNoStep;
    // The steps [run_begin, run_end) all have a value: the newest such run.
    StepIndex run_begin = 0;
    StepIndex run_end = 0;
    std::optional<DType> tested_dtype = {};
    std::int64_t tested_value = 0;  // of step given_in
  };

  struct PatternState {
    ItemPattern pattern;
    std::uint64_t reach = 0;
    StepIndex tried_in = kNoStep;  // the step of which it last made an item, or could not
    std::uint64_t applied_at = 0;  // used_steps_ at its last item
    std::vector<std::vector<StepRange>> ranges;  // of each column, for the item that is made
    std::vector<TrajectoryColumn> columns;
  };

  StructuredWriter(std::unique_ptr<TrajectoryWriter> writer, std::vector<ItemPattern> patterns,
                   std::size_t queued_max);

  Status make_room(TimePoint deadline, const WaitOptions& wait);
  Status check(const LeafValue& value, StepIndex step) const;
  void note(const LeafValue& value, StepIndex step);
  // Tries the patterns on the newest step. The first error, once all were tried.
  Status apply(StepIndex newest, bool is_end, TimePoint deadline, const WaitOptions& wait);
  bool conditions_hold(const PatternState& state, StepIndex newest, bool is_end) const;
  // False if rows are missing.
  bool find_rows(PatternState& state, StepIndex newest) const;
  bool has_rows(const Leaf& leaf, const PatternColumn& column, StepIndex end) const;
  Status create(PatternState& state, TimePoint deadline, const WaitOptions& wait);
  Result<double> priority(const PatternState& state) const;

  std::unique_ptr<TrajectoryWriter> writer_;
  std::vector<PatternState> patterns_;
  std::size_t queued_max_;  // items queued with which there is room for one of each pattern
  std::vector<Leaf> leaves_;
  StepIndex used_in_ = kNoStep;       // the last step that has a leaf in use
  std::uint64_t used_steps_ = 0;      // such steps so far
  StepIndex buffer_begin_ = 0;        // first step that items may refer to
  std::vector<ColumnValue> written_;  // of the append that runs; kept for its memory
};

}  // namespace reverie
