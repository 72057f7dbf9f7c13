// UpdateQueue: which updates of priorities go together in one call, and when.
//
//     add, add, add --> [ waiting: calls, the last one open ] --> next() --> in progress --> end()
//
// A call to a server costs both sides more than the update of a hundred priorities, so the updates
// of a fast learner share calls: the next one begins when the last one has ended and began at least
// `pace` ago, or when it is full. The first update after a pause is not delayed.
//
// The updates of a table take effect in their order, if calls in progress do. A store refuses a
// call as a whole; a call of several updates is then repeated update by update, so that only the
// faulty one is lost. Later calls of its table may be in progress by then: once they have ended,
// they are repeated too, behind it, and until then nothing else of this table begins.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Updates of one table that are sent together: all by ticket, all by key, or one by both.
class UpdateCall {
 public:
  // More priorities do not go together.
  static constexpr std::size_t kPrioritiesMax = 4096;

  explicit UpdateCall(const MutateRequest& request);

  const std::string& table() const { return table_; }
  std::size_t update_count() const { return ends_.size(); }
  // Valid while the call is unchanged.
  MutateRequest request() const;
  // Appends an update that may share the call; else returns false, without effect.
  bool add(const MutateRequest& request);
  // Whether no update of this size would fit.
  bool is_full() const { return tickets_.size() + keys_.size() >= kPrioritiesMax; }
  // A call for each update, in their order.
  std::vector<UpdateCall> split() const;

 private:
  std::string table_;
  std::vector<std::uint64_t> tickets_;
  std::vector<double> ticket_priorities_;
  std::vector<ItemKey> keys_;
  std::vector<double> key_priorities_;
  std::vector<std::size_t> ends_;  // of each update, in tickets_ or keys_
};

// Not thread-safe: UpdateWindow locks. Its callers do what next() says.
class UpdateQueue {
 public:
  // Full calls in progress.
  static constexpr std::size_t kCallsMax = 8;

  explicit UpdateQueue(Duration pace) : pace_(pace) {}

  // Requires an update without deletes.
  void add(const MutateRequest& request);
  // The call to begin now; null: none yet. With `is_urgent` all calls that wait begin, except those
  // of a table of which a refused call waits to be repeated.
  std::shared_ptr<const UpdateCall> next(TimePoint now, bool is_urgent);
  // When next() will have a call, if no call in progress ends before; TimePoint::max(): not before
  // one ends.
  TimePoint due() const;
  // A call that next() returned has ended.
  void end(const UpdateCall& call, const Status& status);

  // Updates that wait or are in progress.
  std::size_t update_count() const { return update_count_; }
  bool has_waiting() const { return !waiting_.empty(); }
  bool has_failure() const { return failure_.has_value(); }
  // The first failure since the last call of this, and its table.
  struct Failure {
    Status status;
    std::string table;
  };
  std::optional<Failure> take_failure();

 private:
  struct Waiting {
    UpdateCall call;
    bool is_repeated = false;  // it takes no other updates, and does not wait for its time
  };
  struct Begun {
    std::shared_ptr<const UpdateCall> call;
    enum { kInProgress, kRefused, kDone } state = kInProgress;
  };

  std::size_t calls_in_progress() const;
  // The place in waiting_ of the first call that waits for nothing but its time; else the size.
  std::size_t first_ready() const;
  // Forgets what has ended, once nothing can make it necessary to repeat it.
  void settle();
  // Requires that all calls of the table have ended, and that the first one was refused.
  void repeat(const std::string& table);

  const Duration pace_;
  std::deque<Waiting> waiting_;
  // In their order. One that has ended stays while an earlier one of its table is in progress or
  // refused.
  std::deque<Begun> begun_;
  std::size_t update_count_ = 0;
  TimePoint next_at_ = {};
  std::optional<Failure> failure_;
};

}  // namespace reverie
