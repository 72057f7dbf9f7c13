#include "reverie/env/shared_pool.h"

#include <algorithm>
#include <utility>

#include "reverie/base/waiting.h"

namespace reverie {
namespace {}  // namespace

SharedPool::SharedPool(SharedView view, Duration spin)
    : view_(std::move(view)),
      spin_(spin),
      batches_(view_.shape().batch_count),
      in_flight_(view_.shape().env_count),
      has_raised_(view_.shape().env_count),
      collected_(view_.shape().worker_count) {}

void SharedPool::push(std::size_t worker, const PoolCommand& command) {
  WorkerBlock& block = view_.worker(worker);
  const std::uint32_t position = block.posted.load(std::memory_order_relaxed);
  view_.command(worker, position) = command;
  block.posted.store(position + 1);
}

void SharedPool::wake(std::size_t worker) {
  WorkerBlock& block = view_.worker(worker);
  if (block.is_asleep.load() != 0) futex_wake_all(block.posted);
}

void SharedPool::set_seed(std::size_t batch, std::optional<std::int64_t> seed) {
  BatchBlock& block = view_.batch(batch);
  block.has_seed.store(seed ? 1 : 0);
  block.seed.store(seed.value_or(0));
}

Status SharedPool::refuse_if_in_flight(std::size_t batch) const {
  if (!batches_[batch].is_in_flight) return {};
  return failed_precondition(
      "batch {} is being stepped already; take that step's result first, or reset the batch",
      batch);
}

Status SharedPool::check_idle(std::size_t batch) const {
  MutexLock lock(mutex_);
  return refuse_if_in_flight(batch);
}

Result<std::uint32_t> SharedPool::post(std::size_t batch, PoolOp op,
                                       std::optional<std::int64_t> seed) {
  MutexLock lock(mutex_);
  BatchState& state = batches_[batch];
  if (op == PoolOp::kStep) REVERIE_RETURN_IF_ERROR(refuse_if_in_flight(batch));
  // The queues have room for two commands in flight; a third waits for the first.
  if (state.is_in_flight && missing(batch, state.sequence - 1) > 0 && state.sequence > 1) {
    return failed_precondition(
        "batch {} has a reset in flight after another call; wait for its result first", batch);
  }
  if (op == PoolOp::kReset) set_seed(batch, seed);
  state.sequence += 1;
  state.op = op;
  state.is_in_flight = true;
  const PoolCommand command{op, static_cast<std::uint32_t>(batch), kWholeRange, state.sequence};
  for (std::size_t worker = 0; worker < view_.shape().worker_count; ++worker) {
    push(worker, command);
    wake(worker);
  }
  return state.sequence;
}

std::size_t SharedPool::missing(std::size_t batch, std::uint32_t sequence) const {
  std::size_t count = 0;
  for (std::size_t worker = 0; worker < view_.shape().worker_count; ++worker) {
    const std::uint32_t done = view_.done(batch, worker).load(std::memory_order_acquire);
    if (static_cast<std::int32_t>(done - sequence) < 0) ++count;
  }
  return count;
}

bool SharedPool::is_done(std::size_t batch, std::uint32_t sequence) const {
  return missing(batch, sequence) == 0;
}

Status SharedPool::wait_for_arrivals(std::size_t batch, const std::function<std::size_t()>& missing,
                                     TimePoint deadline, const Check& check) {
  BatchBlock& block = view_.batch(batch);
  const Clock& clock = Clock::system();
  // The count of arrivals is read before the count of missing rows: an arrival in between can cause
  // an early wake-up, never a late one.
  std::uint32_t arrived = block.arrived.load();
  std::size_t left = missing();
  if (left == 0) return {};
  const TimePoint spin_end = clock.now() + spin_;
  TimePoint now = clock.now();
  while (now < spin_end) {
    if (spin_while_equal(block.arrived, arrived, spin_end - now)) {
      arrived = block.arrived.load();
      left = missing();
      if (left == 0) return {};
    }
    now = clock.now();
  }
  while (true) {
    arrived = block.arrived.load();
    left = missing();
    if (left == 0) return {};
    now = clock.now();
    if (now >= deadline) return late(batch);
    if (!check()) return cancelled("the wait was ended from outside");
    block.target.store(arrived + static_cast<std::uint32_t>(left));
    block.is_awaited.store(1);
    // Rows that arrived before the flag was set have woken no thread.
    const std::uint32_t seen = block.arrived.load();
    if (static_cast<std::int32_t>(seen - block.target.load()) < 0) {
      futex_wait(block.arrived, seen, std::min(deadline - now, kInterruptInterval));
    }
    block.is_awaited.store(0);
  }
}

Status SharedPool::wait(std::size_t batch, std::uint32_t sequence, TimePoint deadline,
                        const Check& check) {
  {
    MutexLock lock(mutex_);
    if (batches_[batch].sequence != sequence) {
      return failed_precondition(
          "another step or reset of batch {} came after this one; its rows are overwritten", batch);
    }
  }
  REVERIE_RETURN_IF_ERROR(wait_for_arrivals(
      batch, [&] { return missing(batch, sequence); }, deadline, check));
  // A batch with an environment that raised stays in flight: a restart posts it again.
  MutexLock lock(mutex_);
  if (batches_[batch].sequence == sequence && first_broken(batch) == nullptr) {
    batches_[batch].is_in_flight = false;
  }
  return {};
}

const std::byte* SharedPool::first_broken(std::size_t batch) const {
  // Not memchr, since workers may be writing these bytes.
  for (std::size_t env = 0; env < view_.shape().env_count; ++env) {
    if (view_.state(batch, env) == EnvState::kBroken) {
      return view_.row(view_.layout().batch(batch).states, env);
    }
  }
  return nullptr;
}

Status SharedPool::late(std::size_t batch) const {
  std::string workers_text;
  for (const std::size_t worker : late_workers(batch)) {
    if (!workers_text.empty()) workers_text += ", ";
    workers_text += format("worker {}", worker);
    if (const auto at = position(worker)) {
      workers_text += format(" (at environment {} of batch {})", at->second, at->first);
    }
  }
  if (workers_text.empty()) workers_text = "none: too few environments are in flight";
  return deadline_exceeded(
      "batch {} is not ready in time; late is {}; wait again with a longer timeout_s", batch,
      workers_text);
}

std::vector<std::size_t> SharedPool::late_workers(std::size_t batch) const {
  std::vector<std::size_t> late;
  MutexLock lock(mutex_);
  const BatchState& state = batches_[batch];
  for (std::size_t worker = 0; worker < view_.shape().worker_count; ++worker) {
    const std::uint32_t done = view_.done(batch, worker).load(std::memory_order_acquire);
    bool is_late = state.is_in_flight && static_cast<std::int32_t>(done - state.sequence) < 0;
    if (batch == 0) {
      const EnvRange range = view_.layout().range_of(worker);
      for (std::size_t env = range.begin; env < range.end; ++env) {
        is_late = is_late || in_flight_[env].has_value();
      }
    }
    if (is_late) late.push_back(worker);
  }
  return late;
}

std::optional<std::pair<std::size_t, std::size_t>> SharedPool::position(std::size_t worker) const {
  const WorkerBlock& block = view_.worker(worker);
  const std::uint32_t env = block.at_env.load();
  if (env == kNoEnv) return std::nullopt;
  return std::pair<std::size_t, std::size_t>(block.at_batch.load(), env);
}

Status SharedPool::refuse_if_in_flight(std::span<const std::int32_t> envs) {
  collect();
  for (const std::int32_t env : envs) {
    const bool is_ready = std::find(ready_.begin(), ready_.end(), env) != ready_.end();
    if (!in_flight_[static_cast<std::size_t>(env)] && !is_ready) continue;
    return failed_precondition(
        "environment {} is being stepped already; step it again once it was in a result", env);
  }
  return {};
}

Status SharedPool::check_idle(std::span<const std::int32_t> envs) {
  MutexLock lock(mutex_);
  return refuse_if_in_flight(envs);
}

Status SharedPool::post_envs(std::span<const std::int32_t> envs, PoolOp op,
                             std::optional<std::int64_t> seed) {
  MutexLock lock(mutex_);
  REVERIE_RETURN_IF_ERROR(refuse_if_in_flight(envs));
  if (op == PoolOp::kReset) set_seed(0, seed);
  for (const std::int32_t env : envs) {
    const auto index = static_cast<std::size_t>(env);
    in_flight_[index] = op;
    has_raised_[index] = false;
    push(view_.layout().worker_of(index), {op, 0, static_cast<std::uint32_t>(env), 0});
  }
  for (std::size_t worker = 0; worker < view_.shape().worker_count; ++worker) wake(worker);
  return {};
}

bool SharedPool::collect() {
  bool has_raised = false;
  for (std::size_t worker = 0; worker < collected_.size(); ++worker) {
    const std::uint32_t count = view_.worker(worker).ready_count.load(std::memory_order_acquire);
    for (; collected_[worker] != count; ++collected_[worker]) {
      const std::uint32_t env = view_.ready(worker, collected_[worker]);
      // An environment that raised stays in flight: a restart of its worker posts it again.
      has_raised_[env] = view_.state(0, env) == EnvState::kBroken;
      if (has_raised_[env]) continue;
      in_flight_[env] = std::nullopt;
      ready_.push_back(static_cast<std::int32_t>(env));
    }
  }
  for (std::size_t env = 0; env < in_flight_.size(); ++env) {
    has_raised = has_raised || (in_flight_[env] && view_.state(0, env) == EnvState::kBroken);
  }
  return has_raised;
}

std::size_t SharedPool::in_flight_count() const {
  MutexLock lock(mutex_);
  std::size_t count = ready_.size();
  for (const auto& op : in_flight_) count += op.has_value() ? 1 : 0;
  return count;
}

bool SharedPool::are_ready(std::size_t count) {
  MutexLock lock(mutex_);
  return collect() || ready_.size() >= count;
}

Status SharedPool::wait_ready(std::size_t count, TimePoint deadline, const Check& check,
                              std::vector<std::int32_t>& ready) {
  ready.clear();
  const auto missing = [&]() -> std::size_t {
    MutexLock lock(mutex_);
    if (collect() || ready_.size() >= count) return 0;
    return count - ready_.size();
  };
  REVERIE_RETURN_IF_ERROR(wait_for_arrivals(0, missing, deadline, check));
  MutexLock lock(mutex_);
  if (collect() || ready_.size() < count) return {};
  const auto end = ready_.begin() + static_cast<std::ptrdiff_t>(count);
  ready.assign(ready_.begin(), end);
  ready_.erase(ready_.begin(), end);
  return {};
}

Status SharedPool::drain(TimePoint deadline, const Check& check) {
  const auto missing = [&] {
    MutexLock lock(mutex_);
    collect();
    std::size_t count = 0;
    for (std::size_t env = 0; env < in_flight_.size(); ++env) {
      // Not by its state, which a worker sets before it is done with the environment.
      if (in_flight_[env] && !has_raised_[env]) ++count;
    }
    return count;
  };
  REVERIE_RETURN_IF_ERROR(wait_for_arrivals(0, missing, deadline, check));
  MutexLock lock(mutex_);
  std::fill(in_flight_.begin(), in_flight_.end(), std::nullopt);
  ready_.clear();
  return {};
}

std::optional<EnvFailure> SharedPool::failure(std::size_t batch) const {
  const std::byte* const found = first_broken(batch);
  if (found == nullptr) return std::nullopt;
  EnvFailure failure;
  failure.batch = batch;
  failure.env = static_cast<std::size_t>(found - view_.row(view_.layout().batch(batch).states, 0));
  failure.worker = view_.layout().worker_of(failure.env);
  WorkerBlock& block = view_.worker(failure.worker);
  // A text of another batch waits for that one; one of an environment that was reset is outdated.
  if (block.has_failed.load() != 0 && block.failed_batch == batch &&
      view_.state(batch, block.failed_env) == EnvState::kBroken) {
    failure.text.assign(block.failure, std::min<std::size_t>(block.failure_bytes, kFailureTextMax));
    failure.env = block.failed_env;
    block.has_failed.store(0);
  }
  return failure;
}

void SharedPool::restart(std::size_t worker) {
  MutexLock lock(mutex_);
  collect();
  WorkerBlock& block = view_.worker(worker);
  block.posted.store(0);
  block.ready_count.store(0);
  block.is_asleep.store(0);
  block.at_env.store(kNoEnv);
  block.has_failed.store(0);
  collected_[worker] = 0;
  const EnvRange range = view_.layout().range_of(worker);
  for (std::size_t batch = 0; batch < batches_.size(); ++batch) {
    BatchState& state = batches_[batch];
    for (std::size_t env = range.begin; env < range.end; ++env) {
      if (view_.state(batch, env) != EnvState::kNew) view_.set_state(batch, env, EnvState::kLost);
    }
    if (!state.is_in_flight) continue;
    view_.done(batch, worker).store(state.sequence - 1);
    push(worker, {state.op, static_cast<std::uint32_t>(batch), kWholeRange, state.sequence});
  }
  for (std::size_t env = range.begin; env < range.end; ++env) {
    has_raised_[env] = false;
    if (in_flight_[env]) push(worker, {*in_flight_[env], 0, static_cast<std::uint32_t>(env), 0});
  }
  wake(worker);
}

void SharedPool::stop() {
  MutexLock lock(mutex_);
  for (std::size_t worker = 0; worker < view_.shape().worker_count; ++worker) {
    push(worker, {PoolOp::kStop, 0, kWholeRange, 0});
    wake(worker);
  }
}

}  // namespace reverie
