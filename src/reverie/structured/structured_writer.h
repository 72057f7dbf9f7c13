// StructuredWriter: makes items of its steps by itself, wherever a pattern matches.
//
//     append(step) --> the leaves that a pattern refers to      --> TrajectoryWriter
//                      each pattern whose conditions hold, once a step --> an item
//
// After each append, partial ones too, and at an episode's end, the patterns are tried in order. A
// pattern that has made an item of the newest step is not tried on it again. A pattern with missing
// rows (too few steps, an omitted leaf) is skipped, and all are skipped while the newest step has
// none of the leaves that they use.
//
// Leaves that no pattern refers to are not written; those that only conditions use are only tested.
//
// Source: dm-reverb 0.14's StructuredWriter, as observed. Differs: a condition's leaf that is not a
// whole number is refused, where Reverb's condition is never true; so is a step with fewer leaves
// than a pattern refers to; an append waits while max_in_flight_items are queued.
//
// Only one thread at a time may use it; any thread may call close().
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
  // `options` as for a TrajectoryWriter, but num_keep_alive_refs is raised to what the patterns
  // reach back, and max_in_flight_items to one per pattern. INVALID_ARGUMENT as in
  // check_patterns.
  static Result<std::unique_ptr<StructuredWriter>> open(std::shared_ptr<ReplayService> service,
                                                        std::vector<ItemPattern> patterns,
                                                        TrajectoryWriterOptions options);
  StructuredWriter(const StructuredWriter&) = delete;
  StructuredWriter& operator=(const StructuredWriter&) = delete;

  // Sets the names of a step's leaves, in flat order. Call it once, before the first append.
  // INVALID_ARGUMENT if a pattern refers to a leaf beyond them.
  Status set_leaves(std::vector<std::string> names);
  // Zero before set_leaves().
  std::size_t leaf_count() const { return leaves_.size(); }
  // Whether a value of that leaf is used; other leaves may be left out of an append.
  bool uses(LeafIndex leaf) const { return leaves_[leaf].is_written || leaves_[leaf].is_tested; }

  // Writes one step, or a part of it, then makes the items. Omitted leaves have no value in this
  // step. First waits until the queue has room for an item of every pattern: if that fails, nothing
  // is written. INVALID_ARGUMENT, naming the leaf, as TrajectoryWriter::append, and if a
  // condition's leaf is not a single whole number; FAILED_PRECONDITION for a leaf twice in a step:
  // nothing is written. The loss of an earlier item is reported, saying that the step is not
  // written. An item that cannot be made does not affect others; its error is returned, and the
  // step is written. If the deadline ended its wait for the table's signature, it is made by the
  // next append to the same step or by end_episode(). Requires set_leaves(), and leaves that it
  // named.
  Status append(std::span<const LeafValue> values, bool partial_step, TimePoint deadline,
                const WaitOptions& wait);

  // Waits until at most `max_pending` items are queued. DEADLINE_EXCEEDED says how many are queued.
  Status flush(std::size_t max_pending, TimePoint deadline, const WaitOptions& wait) {
    return writer_->flush(max_pending, deadline, wait);
  }

  // Makes the items of patterns for the end of an episode, then does what
  // TrajectoryWriter::end_episode does, which reports the loss of earlier items. May be called
  // again if it fails: an item is made only once.
  Status end_episode(bool clear_buffers, TimePoint deadline, const WaitOptions& wait);

  bool step_is_open() const { return writer_->step_is_open(); }
  std::size_t pending_items() const { return writer_->pending_items(); }
  // Whether an append or end_episode may wait now.
  bool may_wait() const;

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
    std::uint64_t seen_in = 0;  // the number of the last append that has it
    // The newest run of steps that all have a value: [run_begin, run_end).
    StepIndex run_begin = 0;
    StepIndex run_end = 0;
    std::optional<DType> tested_dtype = {};
    std::int64_t tested_value = 0;  // in step given_in
  };

  struct PatternState {
    ItemPattern pattern;
    std::uint64_t reach = 0;
    StepIndex tried_in = kNoStep;  // the last step that it made, or failed to make, an item of
    std::uint64_t applied_at = 0;  // used_steps_ at its last item
    std::vector<std::vector<StepRange>> ranges;  // by column, for the current item
    std::vector<TrajectoryColumn> columns;
  };

  StructuredWriter(std::unique_ptr<TrajectoryWriter> writer, std::vector<ItemPattern> patterns,
                   std::size_t queued_max);

  Status make_room(TimePoint deadline, const WaitOptions& wait);
  // Also notes that the current append has the leaf.
  Status check(const LeafValue& value, StepIndex step);
  void note(const LeafValue& value, StepIndex step);
  // Tries all patterns on the newest step; returns the first error.
  Status apply(StepIndex newest, bool is_end, TimePoint deadline, const WaitOptions& wait);
  bool conditions_hold(const PatternState& state, StepIndex newest, bool is_end) const;
  // False if rows are missing.
  bool find_rows(PatternState& state, StepIndex newest) const;
  bool has_rows(const Leaf& leaf, const PatternColumn& column, StepIndex end) const;
  Status create(PatternState& state, TimePoint deadline, const WaitOptions& wait);
  Result<double> priority(const PatternState& state) const;

  std::unique_ptr<TrajectoryWriter> writer_;
  std::vector<PatternState> patterns_;
  std::size_t queued_max_;  // with so many queued, one item per pattern still fits
  std::vector<Leaf> leaves_;
  StepIndex used_in_ = kNoStep;   // the last step that has a used leaf
  std::uint64_t used_steps_ = 0;  // such steps so far
  StepIndex buffer_begin_ = 0;    // first step that items may refer to
  std::uint64_t appends_ = 0;
  std::vector<ColumnValue> written_;  // of the current append; reuses memory
};

}  // namespace reverie
