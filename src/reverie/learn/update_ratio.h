// UpdateRatio: how many environment steps there are for each batch that is learned from, held for a
// run.
//
//     steps     |--- warmup ---|--- update_interval ---|--- update_interval ---| ...
//     batches                                          0                       1
//
// Batch number b may be learned from once warmup + (b + 1) update_interval steps are collected.
// Actors may collect until they are `lead` steps ahead of that; then they wait until half of the
// lead is used up, so that neither side is woken for every step. UpdateRatio is the arithmetic
// alone; RatioGate (below) lets threads wait for it.
//
// Source: the loop of "Parallel Actors and Learners", algorithm 1, with actors and learners apart.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"

namespace reverie {

struct UpdateRatioOptions {
  std::uint64_t steps = 0;  // of the run
  std::uint64_t warmup = 0;
  double update_interval = 1;
  std::uint64_t lead = 0;
  std::uint64_t actor_stride = 1;       // steps that an actor takes at once
  std::uint64_t batches_per_round = 1;  // learned from together; no part of a round is ever begun
};

// A plain state machine. Numbers of steps and batches count from the run's begin.
class UpdateRatio {
 public:
  explicit UpdateRatio(const UpdateRatioOptions& options);

  // Batches of the whole run: a multiple of batches_per_round.
  std::uint64_t batch_count() const { return batch_count_; }
  // Steps that must be there before batch `number` is learned from.
  double steps_before(std::uint64_t number) const {
    return static_cast<double>(options_.warmup) +
           static_cast<double>(number + 1) * options_.update_interval;
  }

  void collect(std::uint64_t steps) { collected_ += steps; }
  void learn(std::uint64_t batches) { learned_ += batches; }
  // As after so many.
  void restore(std::uint64_t collected, std::uint64_t learned) {
    collected_ = collected;
    learned_ = learned;
  }
  std::uint64_t collected() const { return collected_; }
  std::uint64_t learned() const { return learned_; }

  bool has_all_steps() const { return collected_ >= options_.steps; }
  // Whether batch `number` has its steps.
  bool is_due(std::uint64_t number) const {
    return static_cast<double>(collected_) >= steps_before(number);
  }
  // How many steps are collected that no batch has asked for yet; negative while warming up.
  double ahead() const {
    return static_cast<double>(collected_) - static_cast<double>(options_.warmup) -
           static_cast<double>(learned_) * options_.update_interval;
  }
  // Whether actors have nothing to wait for: before a wait, and to end one.
  bool may_collect() const { return ahead() < lead_ || learned_ >= batch_count_; }
  bool may_go_on_collecting() const { return ahead() <= lead_ / 2 || learned_ >= batch_count_; }

  // Steps collected for each batch since the warm-up: what is held near update_interval. Absent
  // before the first batch.
  std::optional<double> measured_interval() const;

 private:
  UpdateRatioOptions options_;
  double lead_;
  std::uint64_t batch_count_ = 0;
  std::uint64_t collected_ = 0;
  std::uint64_t learned_ = 0;
};

// Thread-safe: the shell that lets actors and learners wait for their UpdateRatio.
class RatioGate {
 public:
  struct Waits {
    double actors_s = 0;    // of all actors together
    double learners_s = 0;  // of all learners together
  };

  RatioGate(const UpdateRatioOptions& options, Clock& clock);

  // Waits until an actor may take actor_stride steps. False once the run has all its steps, or is
  // stopped. The steps count from collect() on.
  bool begin_collect();
  // Steps that were taken; returns how many there are now.
  std::uint64_t collect(std::uint64_t steps);

  // For actors that no thread here stands for: their steps count when they are told. Whether they
  // have nothing to wait for: so it is once there is nothing more to collect, too.
  bool may_collect() const;
  // Waits for that, until `deadline`.
  bool wait_to_collect(TimePoint deadline);
  // Steps that they have taken; returns how many there are now.
  std::uint64_t collect_outside(std::uint64_t steps);
  // Whether actors have nothing more to do.
  bool is_all_collected() const;

  // Waits until batch `number` has its steps. False for one beyond the last, or when stopped.
  bool begin_batch(std::uint64_t number);
  // The same for the next batch that no learner has begun.
  bool begin_next_batch();
  void learn(std::uint64_t batches);

  // How many threads call begin_...(): pause() waits for these. A thread that has ended is no more.
  void attach(std::size_t threads);
  void detach();
  // Holds every thread back where it would begin a step or a batch, and waits until all are there,
  // or have ended: no step, batch or round is under way then. False for one that is paused already,
  // or stopped: its threads are then about to end. go_on() follows either way.
  bool pause();
  void go_on();
  // Before the first step: as after so many steps and batches.
  void restore(std::uint64_t collected, std::uint64_t learned);

  // Ends all waits, now and to come.
  void stop();
  bool is_stopped() const;

  std::uint64_t batch_count() const { return batch_count_; }
  // How things stand.
  UpdateRatio ratio() const;
  Waits waits() const;

 private:
  // `in_round`: others may have begun the same one, which a pause must let end.
  bool wait_for_batch(std::uint64_t number, bool in_round) REVERIE_REQUIRES(mutex_);
  // One more wait for a change, which a pause counts as a thread at rest.
  void wait_for_change() REVERIE_REQUIRES(mutex_);
  std::uint64_t add_collected(std::uint64_t steps) REVERIE_REQUIRES(mutex_);
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
  std::uint64_t claimed_ REVERIE_GUARDED_BY(mutex_) = 0;  // steps, by actors that take them now
  std::uint64_t begun_ REVERIE_GUARDED_BY(mutex_) = 0;    // batches, of begin_next_batch()
  int waiting_actors_ REVERIE_GUARDED_BY(mutex_) = 0;
  double wanted_steps_ REVERIE_GUARDED_BY(mutex_) = 0;  // the fewest that a learner waits for
  int waiting_learners_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_paused_ REVERIE_GUARDED_BY(mutex_) = false;
  std::size_t threads_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t resting_ REVERIE_GUARDED_BY(mutex_) = 0;       // of these, in wait_for_change()
  std::uint64_t rounds_end_ REVERIE_GUARDED_BY(mutex_) = 0;  // of batches that begin_batch() began
  Waits waits_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
