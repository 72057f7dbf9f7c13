#include "reverie/learn/update_ratio.h"

#include <cmath>
#include <utility>

namespace reverie {

UpdateRatio::UpdateRatio(const UpdateRatioOptions& options) : options_(options) {
  // Room for two rounds and two strides, or else actors and learners would wait for each other.
  const double round = options.update_interval * static_cast<double>(options.batches_per_round);
  lead_ = std::max(static_cast<double>(options.lead),
                   4 * round + 4 * static_cast<double>(options.actor_stride));
  batch_count_ = batches_of(options.steps);
  batch_count_ -= batch_count_ % options.batches_per_round;
}

std::uint64_t UpdateRatio::batches_of(std::uint64_t steps) const {
  if (steps <= options_.warmup) return 0;
  return static_cast<std::uint64_t>(
      std::floor(static_cast<double>(steps - options_.warmup) / options_.update_interval));
}

std::optional<double> UpdateRatio::measured_interval() const {
  if (learned_ == 0 || collected_ < options_.warmup) return std::nullopt;
  return static_cast<double>(collected_ - options_.warmup) / static_cast<double>(learned_);
}

RatioGate::RatioGate(const UpdateRatioOptions& options, Clock& clock)
    : options_(options),
      clock_(clock),
      batch_count_(UpdateRatio(options).batch_count()),
      ratio_(options) {}

void RatioGate::wait_for_change() {
  ++resting_;
  if (is_paused_) changed_.notify_all();
  changed_.wait(mutex_);
  --resting_;
}

bool RatioGate::begin_collect() {
  MutexLock lock(mutex_);
  const auto is_open = [this] {
    mutex_.assert_held();
    return !is_stopped_ && (is_paused_ || claimed_ < options_.steps);
  };
  if (is_open() && (is_paused_ || !has_room())) {
    const TimePoint begin = clock_.now();
    ++waiting_actors_;
    while (is_open() && (is_paused_ || !has_room(/*ample=*/true))) wait_for_change();
    --waiting_actors_;
    waits_.actors_s += to_seconds(clock_.now() - begin);
  }
  if (is_stopped_ || claimed_ >= options_.steps) return false;
  claimed_ += options_.actor_stride;
  return true;
}

std::uint64_t RatioGate::collect(std::uint64_t steps) {
  MutexLock lock(mutex_);
  return add_collected(steps);
}

std::uint64_t RatioGate::collect_outside(std::uint64_t steps) {
  MutexLock lock(mutex_);
  claimed_ += steps;
  return add_collected(steps);
}

bool RatioGate::is_all_collected() const {
  MutexLock lock(mutex_);
  return is_stopped_ || claimed_ >= options_.steps;
}

bool RatioGate::may_collect() const {
  MutexLock lock(mutex_);
  if (is_stopped_ || claimed_ >= options_.steps) return true;
  return !is_paused_ && has_room();
}

bool RatioGate::wait_to_collect(TimePoint deadline) {
  MutexLock lock(mutex_);
  const auto may_go_on = [this] {
    mutex_.assert_held();
    if (is_stopped_ || claimed_ >= options_.steps) return true;
    return !is_paused_ && has_room(/*ample=*/true);
  };
  ++waiting_actors_;
  while (!may_go_on() && clock_.wait_until(changed_, mutex_, deadline)) {
  }
  --waiting_actors_;
  return may_go_on();
}

std::uint64_t RatioGate::add_collected(std::uint64_t steps) {
  ratio_.collect(steps);
  collected_.store(ratio_.collected(), std::memory_order_relaxed);
  const bool has_enough = static_cast<double>(ratio_.collected()) >= wanted_steps_;
  if (waiting_learners_ > 0 && (has_enough || is_collected())) changed_.notify_all();
  return ratio_.collected();
}

bool RatioGate::wait_for_batch(std::uint64_t number, bool in_round) {
  if (number >= batch_count_) return false;
  // Other threads of the round now wait for this thread, no longer for steps.
  const auto is_begun = [&] {
    mutex_.assert_held();
    return in_round && number < rounds_end_;
  };
  if (!is_stopped_ && !is_begun() && (is_paused_ || !is_due(number))) {
    const TimePoint begin = clock_.now();
    // A learner that has caught up waits for several batches' steps, so that it is not woken for
    // each.
    const double wanted =
        ratio_.is_due(number)
            ? 0
            : ratio_.steps_before(number) + std::max(0.0, static_cast<double>(options_.lead) / 8);
    const auto has_steps = [&] {
      mutex_.assert_held();
      const bool has_wanted = static_cast<double>(ratio_.collected()) >= wanted;
      return is_due(number) && (has_wanted || is_collected());
    };
    while (!is_stopped_ && !is_begun() && (is_paused_ || !has_steps())) {
      wanted_steps_ = waiting_learners_ == 0 ? wanted : std::min(wanted, wanted_steps_);
      ++waiting_learners_;
      wait_for_change();
      --waiting_learners_;
    }
    waits_.learners_s += to_seconds(clock_.now() - begin);
  }
  if (!is_stopped_) has_items_ = nullptr;  // there will always be one
  if (in_round && !is_stopped_ && number >= rounds_end_) {
    rounds_end_ = number + 1;
    if (waiting_learners_ > 0) changed_.notify_all();
  }
  return !is_stopped_;
}

bool RatioGate::begin_batch(std::uint64_t number) {
  // Another learner has begun the round, so all of them go on: they need not meet at the lock.
  if (number < rounds_end_ && !is_stopped_) return true;
  MutexLock lock(mutex_);
  return wait_for_batch(number, /*in_round=*/true);
}

bool RatioGate::begin_next_batch() {
  MutexLock lock(mutex_);
  // Another learner may begin the batch that was waited for.
  while (begun_ < batch_count_ && !is_stopped_ && (is_paused_ || !is_due(begun_))) {
    if (!wait_for_batch(begun_, /*in_round=*/false)) return false;
  }
  if (is_stopped_ || begun_ >= batch_count_) return false;
  ++begun_;
  return true;
}

bool RatioGate::may_begin_batch(std::uint64_t number) const {
  MutexLock lock(mutex_);
  return number < batch_count_ && is_due(number);
}

void RatioGate::hold_batches_until(std::function<bool()> has_items) {
  MutexLock lock(mutex_);
  has_items_ = std::move(has_items);
}

void RatioGate::attach(std::size_t threads) {
  MutexLock lock(mutex_);
  threads_ += threads;
}

void RatioGate::detach() {
  MutexLock lock(mutex_);
  --threads_;
  if (is_paused_) changed_.notify_all();
}

bool RatioGate::pause() {
  MutexLock lock(mutex_);
  is_paused_ = true;
  return !is_stopped_;
}

bool RatioGate::wait_for_rest(TimePoint deadline) {
  MutexLock lock(mutex_);
  const auto is_at_rest = [this] {
    mutex_.assert_held();
    return is_stopped_ || resting_ >= threads_;
  };
  while (!is_at_rest() && clock_.wait_until(changed_, mutex_, deadline)) {
  }
  return is_at_rest();
}

void RatioGate::go_on() {
  MutexLock lock(mutex_);
  is_paused_ = false;
  changed_.notify_all();
}

void RatioGate::restore(std::uint64_t collected, std::uint64_t learned) {
  MutexLock lock(mutex_);
  ratio_.restore(collected, learned);
  collected_.store(collected, std::memory_order_relaxed);
  claimed_ = collected;
  begun_ = learned;
  rounds_end_ = learned;
}

void RatioGate::learn(std::uint64_t batches) {
  MutexLock lock(mutex_);
  ratio_.learn(batches);
  if (waiting_actors_ > 0 && ratio_.may_go_on_collecting()) changed_.notify_all();
}

void RatioGate::stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

bool RatioGate::is_stopped() const {
  return is_stopped_;
}

UpdateRatio RatioGate::ratio() const {
  MutexLock lock(mutex_);
  return ratio_;
}

RatioGate::Waits RatioGate::waits() const {
  MutexLock lock(mutex_);
  return waits_;
}

}  // namespace reverie
