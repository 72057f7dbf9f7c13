// UpdateRatio: keeps the number of environment steps per learned batch constant during a
// run.
//
//     steps     |--- warmup ---|--- update_interval ---|--- update_interval ---| ...
//     batches                                          0                       1
//
// After c steps, (c - warmup) / update_interval batches may be learned from, rounded down: so batch
// number b needs warmup + (b + 1) update_interval steps. Every count comes from this one quotient:
// a product beside it could round up to a step that the run does not have. Actors may collect until
// they are `lead` steps ahead of that; then they wait until half of the lead is used up, so that
// neither side is woken for every step. UpdateRatio is only the arithmetic; RatioGate (below) makes
// threads wait.
//
// Source: the loop of "Parallel Actors and Learners", algorithm 1, with actors and learners apart.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"

namespace reverie {

struct UpdateRatioOptions {
  std::uint64_t steps = 0;  // of the run
  std::uint64_t warmup = 0;
  double update_interval = 1;
  std::uint64_t lead = 0;
  std::uint64_t actor_stride = 1;       // steps per actor turn
  std::uint64_t batches_per_round = 1;  // learned from together; only whole rounds begin
};

// A plain state machine. Steps and batches are counted from the start of the run.
class UpdateRatio {
 public:
  explicit UpdateRatio(const UpdateRatioOptions& options);

  // Batches of the whole run: a multiple of batches_per_round.
  std::uint64_t batch_count() const { return batch_count_; }
  // About how many steps must be there before batch `number` is learned from: is_due() decides.
  double steps_before(std::uint64_t number) const {
    return static_cast<double>(options_.warmup) +
           static_cast<double>(number + 1) * options_.update_interval;
  }

  void collect(std::uint64_t steps) { collected_ += steps; }
  void learn(std::uint64_t batches) { learned_ += batches; }
  // Sets the counts.
  void restore(std::uint64_t collected, std::uint64_t learned) {
    collected_ = collected;
    learned_ = learned;
  }
  std::uint64_t collected() const { return collected_; }
  std::uint64_t learned() const { return learned_; }

  bool has_all_steps() const { return collected_ >= options_.steps; }
  // Whether batch `number` has its steps.
  bool is_due(std::uint64_t number) const { return number < batches_of(collected_); }
  // How many collected steps no batch has used yet; negative during the warm-up.
  double ahead() const {
    return static_cast<double>(collected_) - static_cast<double>(options_.warmup) -
           static_cast<double>(learned_) * options_.update_interval;
  }
  // Whether actors need not wait; also ends a wait.
  bool may_collect() const { return ahead() < lead_ || learned_ >= batch_count_; }
  bool may_go_on_collecting() const { return ahead() <= lead_ / 2 || learned_ >= batch_count_; }

  // Steps collected per batch since the warm-up, which is kept near update_interval. None before
  // the first batch.
  std::optional<double> measured_interval() const;

 private:
  // How many batches so many steps are enough for.
  std::uint64_t batches_of(std::uint64_t steps) const;

  UpdateRatioOptions options_;
  double lead_;
  std::uint64_t batch_count_ = 0;
  std::uint64_t collected_ = 0;
  std::uint64_t learned_ = 0;
};

// Thread-safe: the shell in which actors and learners wait according to an UpdateRatio.
class RatioGate {
 public:
  struct Waits {
    double actors_s = 0;    // of all actors together
    double learners_s = 0;  // of all learners together
  };

  RatioGate(const UpdateRatioOptions& options, Clock& clock);

  // Waits until an actor may take actor_stride steps. False once the run has all its steps, or is
  // stopped. The steps count once collect() is called.
  bool begin_collect();
  // Adds steps that were taken; returns the total.
  std::uint64_t collect(std::uint64_t steps);

  // For actors without a thread here, whose steps count when reported: whether they need not wait.
  // Also true once there is nothing more to collect.
  bool may_collect() const;
  // Waits for may_collect(), until `deadline`.
  bool wait_to_collect(TimePoint deadline);
  // Adds steps that they have taken; returns the total.
  std::uint64_t collect_outside(std::uint64_t steps);
  // Whether actors have nothing more to do.
  bool is_all_collected() const;

  // Waits until batch `number` has its steps. False for one beyond the last, or when stopped.
  bool begin_batch(std::uint64_t number);
  // The same for the next batch that no learner has begun.
  bool begin_next_batch();
  // For a thread that collects and learns in turn: whether begin_batch() would not wait.
  bool may_begin_batch(std::uint64_t number) const;
  void learn(std::uint64_t batches);

  // No batch begins before `has_items` returns true, unless all steps are collected; until then
  // actors do not wait for batches. It is called under the gate's lock. Call this before any wait.
  void hold_batches_until(std::function<bool()> has_items);

  // Sets how many threads call begin_...(): wait_for_rest() waits for these. Ended threads do not
  // count.
  void attach(std::size_t threads);
  void detach();
  // Blocks every thread before its next step or batch. False if it is stopped: its threads are
  // about to end. go_on() must follow either way.
  bool pause();
  // Waits until all are blocked or have ended, so that no step, batch or round is in progress, or
  // until it is stopped. False at the deadline.
  bool wait_for_rest(TimePoint deadline);
  void go_on();
  // Call it before the first step: sets the counts of steps and batches.
  void restore(std::uint64_t collected, std::uint64_t learned);

  // Ends all current and future waits.
  void stop();
  bool is_stopped() const;

  std::uint64_t batch_count() const { return batch_count_; }
  // Needs no lock.
  std::uint64_t collected() const { return collected_.load(std::memory_order_relaxed); }
  // A copy of the current counts.
  UpdateRatio ratio() const;
  Waits waits() const;

 private:
  // `in_round`: others may have begun the same round, which a pause must let finish.
  bool wait_for_batch(std::uint64_t number, bool in_round) REVERIE_REQUIRES(mutex_);
  // Waits for a change; a pause counts the thread as blocked meanwhile.
  void wait_for_change() REVERIE_REQUIRES(mutex_);
  std::uint64_t add_collected(std::uint64_t steps) REVERIE_REQUIRES(mutex_);
  bool is_held() const REVERIE_REQUIRES(mutex_) { return has_items_ && !has_items_(); }
  bool is_due(std::uint64_t number) const REVERIE_REQUIRES(mutex_) {
    return ratio_.is_due(number) && (is_collected() || !is_held());
  }
  bool has_room(bool ample = false) const REVERIE_REQUIRES(mutex_) {
    return is_held() || (ample ? ratio_.may_go_on_collecting() : ratio_.may_collect());
  }
  // Whether no actor will take further steps.
  bool is_collected() const REVERIE_REQUIRES(mutex_) {
    return claimed_ >= options_.steps && ratio_.collected() >= claimed_;
  }

  const UpdateRatioOptions options_;
  Clock& clock_;
  const std::uint64_t batch_count_;
  mutable Mutex mutex_;
  CondVar changed_;
  UpdateRatio ratio_ REVERIE_GUARDED_BY(mutex_);
  std::function<bool()> has_items_ REVERIE_GUARDED_BY(mutex_);  // empty: batches are not held
  std::uint64_t claimed_ REVERIE_GUARDED_BY(mutex_) = 0;        // steps that actors are taking now
  std::uint64_t begun_ REVERIE_GUARDED_BY(mutex_) = 0;  // batches begun by begin_next_batch()
  int waiting_actors_ REVERIE_GUARDED_BY(mutex_) = 0;
  double wanted_steps_ REVERIE_GUARDED_BY(mutex_) = 0;  // the fewest that a learner waits for
  int waiting_learners_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> is_stopped_{false};  // also read without the lock
  bool is_paused_ REVERIE_GUARDED_BY(mutex_) = false;
  std::size_t threads_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t resting_ REVERIE_GUARDED_BY(mutex_) = 0;  // of these, those in wait_for_change()
  // The batches begun by begin_batch(), and the steps: changed under the lock, read without it.
  std::atomic<std::uint64_t> rounds_end_{0};
  std::atomic<std::uint64_t> collected_{0};
  Waits waits_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
