#include "reverie/env/native_pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "reverie/env/native_steppers.h"

namespace reverie {
namespace {

constexpr std::size_t kAlignment = 64;  // each array starts a cache line

Result<std::shared_ptr<NativeArrays>> make_arrays(const NativeSpec& spec, std::size_t count) {
  const auto elements = static_cast<std::size_t>(element_count(spec.observation.shape));
  const std::size_t observation = elements * dtype_size_bytes(spec.observation.dtype) * count;
  const std::size_t sizes[] = {observation, observation, count * sizeof(float),
                               count * sizeof(bool), count * sizeof(bool)};
  std::size_t total = kAlignment;
  for (const std::size_t size : sizes) total += (size + kAlignment - 1) / kAlignment * kAlignment;
  auto arrays = std::make_shared<NativeArrays>();
  REVERIE_ASSIGN_OR_RETURN(arrays->memory, Allocator::heap().allocate(total));
  std::memset(arrays->memory.data(), 0, total);
  void* at = arrays->memory.data();
  std::size_t space = total;
  auto* next = static_cast<std::byte*>(std::align(kAlignment, total - kAlignment, at, space));
  const auto take = [&](std::size_t size) {
    return std::exchange(next, next + (size + kAlignment - 1) / kAlignment * kAlignment);
  };
  NativeRows& rows = arrays->rows;
  rows.observation = take(sizes[0]);
  rows.final_observation = take(sizes[1]);
  rows.reward = reinterpret_cast<float*>(take(sizes[2]));
  rows.terminated = reinterpret_cast<bool*>(take(sizes[3]));
  rows.truncated = reinterpret_cast<bool*>(take(sizes[4]));
  return arrays;
}

Status check_count(const char* name, std::size_t given, std::size_t least, std::size_t most) {
  if (given >= least && given <= most) return {};
  return invalid_argument("{} is {}; it must be between {} and {}", name, given, least, most);
}

// Swaps two rows of observations.
void swap_rows(const NativeSpec& spec, const NativeRows& rows, std::size_t row) {
  const auto elements = static_cast<std::size_t>(element_count(spec.observation.shape));
  const std::size_t size = elements * dtype_size_bytes(spec.observation.dtype);
  std::byte* const shown = rows.observation + row * size;
  std::swap_ranges(shown, shown + size, rows.final_observation + row * size);
}

}  // namespace

NativePool::NativePool(const NativePoolOptions& options) : options_(options) {}

Result<std::unique_ptr<NativePool>> NativePool::open(const NativeRegistry& registry,
                                                     std::string_view id, const Options& options,
                                                     const NativePoolOptions& pool) {
  REVERIE_RETURN_IF_ERROR(check_count("num_envs", pool.env_count, 1, kEnvCountMax));
  REVERIE_RETURN_IF_ERROR(check_count("num_batches", pool.batch_count, 1, kBatchCountMax));
  REVERIE_RETURN_IF_ERROR(
      check_count("num_threads", pool.thread_count.value_or(0), 0, kThreadCountMax));
  std::unique_ptr<NativePool> made(new NativePool(pool));
  const std::uint64_t seed = pool.seed ? *pool.seed : random_seed();
  for (std::size_t b = 0; b < pool.batch_count; ++b) {
    auto batch = std::make_unique<Batch>();
    batch->index = b;
    REVERIE_ASSIGN_OR_RETURN(batch->envs, registry.make(id, options, pool.env_count));
    for (std::size_t i = 0; i < pool.env_count; ++i) {
      batch->envs->seed(i, seed + b * pool.env_count + i);
    }
    REVERIE_ASSIGN_OR_RETURN(batch->arrays, make_arrays(batch->envs->spec(), pool.env_count));
    if (pool.autoreset != NativeAutoreset::kSameStep) batch->is_over.resize(pool.env_count);
    made->batches_.push_back(std::move(batch));
  }
  const std::size_t cores = std::max(1u, std::thread::hardware_concurrency());
  const bool is_costly = made->batches_.front()->envs->cost() == NativeCost::kThreads;
  const std::size_t rows = pool.env_count * pool.batch_count;
  // Another thread makes a single environment no faster: the caller would only wait for it to wake.
  const bool wants_threads = is_costly && std::min(cores, rows) > 1;
  const std::size_t threads = pool.thread_count.value_or(wants_threads ? std::min(cores, rows) : 0);
  if (threads > 0) {
    made->steppers_ =
        std::make_unique<Steppers>(*pool.clock, pool.batch_count, pool.env_count, threads);
    REVERIE_RETURN_IF_ERROR(made->steppers_->start(std::max<std::size_t>(1, threads - 1)));
    made->thread_count_ = threads;
  }
  return made;
}

NativePool::~NativePool() {
  if (fork_guard_.check("pool").ok()) return;
  // In a forked child the threads do not exist: there is nothing to join, the locks that they held
  // stay locked, and an environment may be in the middle of a step.
  leave_to_parent(std::move(steppers_));
  leave_to_parent(std::move(batches_));
}

Status NativePool::check_usable() const {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("NativePool"));
  if (!is_closed_.load(std::memory_order_relaxed)) return {};
  return failed_precondition("this pool of {} is closed; make another", spec().id);
}

Status NativePool::check_index(std::size_t batch) const {
  if (batch < batches_.size()) return {};
  return out_of_range("batch is {}; this pool has the batches 0 to {}", batch, batches_.size() - 1);
}

Status NativePool::check_actions(std::span<const std::byte> actions) const {
  const NativeSpec& the_spec = spec();
  if (the_spec.action_count > 0) {
    REVERIE_CHECK(actions.size() == env_count() * sizeof(std::int64_t));
    const auto* given = reinterpret_cast<const std::int64_t*>(actions.data());
    const auto count = static_cast<std::uint64_t>(the_spec.action_count);
    bool are_right = true;
    for (std::size_t i = 0; i < env_count(); ++i) {
      are_right &= static_cast<std::uint64_t>(given[i]) < count;  // without a branch
    }
    if (are_right) return {};
    const auto* wrong = std::find_if(given, given + env_count(), [&](std::int64_t a) {
      return static_cast<std::uint64_t>(a) >= count;
    });
    return invalid_argument("the action of environment {} is {}; {} takes 0 to {}", wrong - given,
                            *wrong, the_spec.id, count - 1);
  }
  const auto elements = static_cast<std::size_t>(element_count(the_spec.action_shape));
  REVERIE_CHECK(actions.size() == env_count() * elements * sizeof(float));
  const auto* given = reinterpret_cast<const float*>(actions.data());
  for (std::size_t i = 0; i < env_count() * elements; ++i) {
    if (std::isfinite(given[i])) continue;
    return invalid_argument("the action of environment {} has {} in it; actions must be finite",
                            i / elements, given[i]);
  }
  return {};
}

Status NativePool::claim(Batch& batch, bool is_reset) const {
  Phase phase = batch.phase.load(std::memory_order_relaxed);
  do {
    if (phase == Phase::kRunning) {
      return failed_precondition("a step of this batch is under way; call result() of it first");
    }
    if (!is_reset && phase != Phase::kIdle) {
      if (phase == Phase::kNew) {
        return failed_precondition("this batch was not reset yet; call reset() and its result()");
      }
      return failed_precondition(
          "the last step of this batch is done, but its result was not taken; call "
          "result() of it first");
    }
  } while (!batch.phase.compare_exchange_weak(phase, Phase::kRunning, std::memory_order_acquire,
                                              std::memory_order_relaxed));
  batch.is_reset = is_reset;
  return {};
}

Status NativePool::reset(std::size_t index, std::optional<std::uint64_t> seed, TimePoint deadline,
                         const std::function<bool()>& interrupted) {
  REVERIE_RETURN_IF_ERROR(check_usable());
  REVERIE_RETURN_IF_ERROR(check_index(index));
  Batch& batch = *batches_[index];
  if (steppers_ && batch.phase.load(std::memory_order_acquire) == Phase::kRunning) {
    REVERIE_RETURN_IF_ERROR(steppers_->wait(batch, deadline, interrupted));
  }
  REVERIE_RETURN_IF_ERROR(claim(batch, /*is_reset=*/true));
  if (seed) {
    for (std::size_t i = 0; i < env_count(); ++i) batch.envs->seed(i, *seed + i);
  }
  return start(batch, {});
}

Status NativePool::reset_some(std::size_t index, const NativeReset& what, TimePoint deadline,
                              const std::function<bool()>& interrupted) {
  REVERIE_RETURN_IF_ERROR(check_usable());
  REVERIE_RETURN_IF_ERROR(check_index(index));
  REVERIE_CHECK(what.is_chosen.size() == env_count() && what.seeds.size() == env_count());
  Batch& batch = *batches_[index];
  if (steppers_ && batch.phase.load(std::memory_order_acquire) == Phase::kRunning) {
    REVERIE_RETURN_IF_ERROR(steppers_->wait(batch, deadline, interrupted));
  }
  const bool are_all =
      std::find(what.is_chosen.begin(), what.is_chosen.end(), false) == what.is_chosen.end();
  if (!are_all && batch.phase.load(std::memory_order_relaxed) == Phase::kNew) {
    return failed_precondition(
        "some environments of a batch are to be reset that was never reset; reset all first");
  }
  REVERIE_RETURN_IF_ERROR(claim(batch, /*is_reset=*/true));
  const NativeRows& rows = batch.arrays->rows;
  for (std::size_t i = 0; i < env_count(); ++i) {
    if (!what.is_chosen[i]) continue;
    if (what.seeds[i]) {
      batch.envs->seed(i, *what.seeds[i]);
    } else if (!batch.is_over.empty() && batch.is_over[i] != 0) {
      show_next(batch, i);
      continue;
    }
    if (!batch.is_over.empty()) batch.is_over[i] = 0;
    batch.envs->reset(i, i + 1, rows);
  }
  batch.phase.store(Phase::kReady, std::memory_order_release);
  return {};
}

Status NativePool::step(std::size_t index, std::span<const std::byte> actions) {
  REVERIE_RETURN_IF_ERROR(check_usable());
  REVERIE_RETURN_IF_ERROR(check_index(index));
  REVERIE_RETURN_IF_ERROR(check_actions(actions));
  Batch& batch = *batches_[index];
  const bool is_reset =
      options_.first_step_resets && batch.phase.load(std::memory_order_relaxed) == Phase::kNew;
  if (options_.autoreset == NativeAutoreset::kDisabled && done(index)) {
    const auto over = std::find(batch.is_over.begin(), batch.is_over.end(), 1);
    if (over != batch.is_over.end()) {
      return failed_precondition(
          "the episode of environment {} is over, and this pool does not reset environments "
          "itself; reset it "
          "first, with a reset_mask that has it",
          over - batch.is_over.begin());
    }
  }
  REVERIE_RETURN_IF_ERROR(claim(batch, is_reset));
  return start(batch, actions);
}

Status NativePool::start(Batch& batch, std::span<const std::byte> actions) {
  if (!steppers_) {
    run(batch, 0, env_count(), actions.data());
    batch.phase.store(Phase::kReady, std::memory_order_release);
    return {};
  }
  batch.actions.assign(actions.begin(), actions.end());
  if (steppers_->start_batch(batch)) return {};
  batch.phase.store(Phase::kNew, std::memory_order_release);
  return check_usable();  // closed during this call
}

bool NativePool::done(std::size_t batch) const {
  return batches_[batch]->phase.load(std::memory_order_acquire) != Phase::kRunning;
}

Status NativePool::wait(std::size_t index, TimePoint deadline,
                        const std::function<bool()>& interrupted) {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("NativePool"));
  REVERIE_RETURN_IF_ERROR(check_index(index));
  Batch& batch = *batches_[index];
  if (batch.phase.load(std::memory_order_acquire) == Phase::kRunning && steppers_) {
    REVERIE_RETURN_IF_ERROR(steppers_->wait(batch, deadline, interrupted));
  }
  Phase phase = Phase::kReady;
  batch.phase.compare_exchange_strong(phase, Phase::kIdle, std::memory_order_acq_rel);
  switch (phase) {
    case Phase::kNew:
      return failed_precondition("nothing of batch {} is under way; call reset() first", index);
    case Phase::kRunning:  // by another thread, which steps it inline or reads its state
      return failed_precondition("another thread steps batch {}; give each thread its own", index);
    default:
      return {};  // if two threads wait for one step, both get its result
  }
}

Result<NativePool::Phase> NativePool::claim_idle(std::size_t index, std::size_t env) {
  REVERIE_RETURN_IF_ERROR(check_usable());
  REVERIE_RETURN_IF_ERROR(check_index(index));
  if (env >= env_count()) {
    return out_of_range("env_index is {}; a batch has the environments 0 to {}", env,
                        env_count() - 1);
  }
  Batch& batch = *batches_[index];
  Phase phase = batch.phase.load(std::memory_order_relaxed);
  do {
    if (phase == Phase::kRunning) {
      return failed_precondition("a step of this batch is under way; call result() of it first");
    }
    if (phase == Phase::kNew) {
      return failed_precondition("this batch was not reset yet; call reset() and its result()");
    }
  } while (!batch.phase.compare_exchange_weak(phase, Phase::kRunning, std::memory_order_acquire,
                                              std::memory_order_relaxed));
  return phase;
}

Result<std::vector<double>> NativePool::get_state(std::size_t index, std::size_t env) {
  REVERIE_ASSIGN_OR_RETURN(const Phase before, claim_idle(index, env));
  auto state = batches_[index]->envs->get_state(env);
  batches_[index]->phase.store(before, std::memory_order_release);
  return state;
}

Status NativePool::set_state(std::size_t index, std::size_t env, std::span<const double> state) {
  for (const double number : state) {
    if (!std::isfinite(number)) {
      return invalid_argument("the state has {} in it; its numbers must be finite", number);
    }
  }
  REVERIE_ASSIGN_OR_RETURN(const Phase before, claim_idle(index, env));
  Batch& batch = *batches_[index];
  Status status = batch.envs->set_state(env, state, batch.arrays->rows);
  // The next episode, which waits to be shown if the last one is over, is replaced.
  if (status.ok() && !batch.is_over.empty()) batch.is_over[env] = 0;
  batch.phase.store(before, std::memory_order_release);
  return status;
}

Result<Random> NativePool::episode_random(std::size_t index, std::size_t env) {
  REVERIE_ASSIGN_OR_RETURN(const Phase before, claim_idle(index, env));
  const Random random = batches_[index]->envs->episode_random(env);
  batches_[index]->phase.store(before, std::memory_order_release);
  return random;
}

Status NativePool::replay_episode(std::size_t index, std::size_t env, const Random& random,
                                  std::span<const std::byte> actions) {
  const std::size_t row_bytes =
      spec().action_count > 0
          ? sizeof(std::int64_t)
          : static_cast<std::size_t>(element_count(spec().action_shape)) * sizeof(float);
  if (actions.size() % row_bytes != 0) {
    return invalid_argument("{} bytes of actions are given; one of {} has {}", actions.size(),
                            spec().id, row_bytes);
  }
  REVERIE_ASSIGN_OR_RETURN(const Phase before, claim_idle(index, env));
  Batch& batch = *batches_[index];
  const NativeRows& rows = batch.arrays->rows;
  batch.envs->begin_episode(env, random, rows);
  if (!batch.is_over.empty()) batch.is_over[env] = 0;
  // The actions of the other rows are checked too, but these rows are not stepped.
  std::vector<std::byte> all(env_count() * row_bytes);
  Status status;
  for (std::size_t at = 0; at < actions.size() && status.ok(); at += row_bytes) {
    std::copy_n(actions.data() + at, row_bytes, all.data() + env * row_bytes);
    status = check_actions(all);
    if (!status.ok()) break;
    batch.envs->step(env, env + 1, all.data(), rows);
    if (rows.terminated[env] || rows.truncated[env]) {
      status = data_loss("the episode of environment {} of {} ended after {} of its {} steps", env,
                         spec().id, at / row_bytes + 1, actions.size() / row_bytes);
    }
  }
  batch.phase.store(before, std::memory_order_release);
  return status;
}

Result<Canvas> NativePool::draw(std::size_t index, std::size_t env) {
  if (spec().picture_width == 0) return unimplemented("{} cannot render", spec().id);
  Canvas canvas(spec().picture_width, spec().picture_height);
  REVERIE_ASSIGN_OR_RETURN(const Phase before, claim_idle(index, env));
  const Status status = batches_[index]->envs->draw(env, canvas);
  batches_[index]->phase.store(before, std::memory_order_release);
  REVERIE_RETURN_IF_ERROR(status);
  return canvas;
}

void NativePool::run(Batch& batch, std::size_t begin, std::size_t end, const std::byte* actions) {
  if (batch.is_reset) {
    batch.envs->reset(begin, end, batch.arrays->rows);
    if (batch.is_over.empty()) return;
    std::fill(batch.is_over.begin() + static_cast<std::ptrdiff_t>(begin),
              batch.is_over.begin() + static_cast<std::ptrdiff_t>(end), std::uint8_t{0});
  } else if (!batch.is_over.empty()) {
    run_late(batch, begin, end, actions);
  } else {
    batch.envs->step(begin, end, actions, batch.arrays->rows);
  }
}

void NativePool::run_late(Batch& batch, std::size_t begin, std::size_t end,
                          const std::byte* actions) {
  const NativeRows& rows = batch.arrays->rows;
  while (begin < end) {
    if (batch.is_over[begin] != 0) {
      show_next(batch, begin++);
      continue;
    }
    std::size_t stop = begin + 1;
    while (stop < end && batch.is_over[stop] == 0) ++stop;
    batch.envs->step(begin, stop, actions, rows);
    for (; begin < stop; ++begin) {
      if (!rows.terminated[begin] && !rows.truncated[begin]) continue;
      swap_rows(batch.envs->spec(), rows, begin);
      batch.is_over[begin] = 1;
    }
  }
}

void NativePool::show_next(Batch& batch, std::size_t row) {
  const NativeRows& rows = batch.arrays->rows;
  swap_rows(batch.envs->spec(), rows, row);
  rows.reward[row] = 0;
  rows.terminated[row] = false;
  rows.truncated[row] = false;
  batch.is_over[row] = 0;
}

void NativePool::close() {
  if (!fork_guard_.check("NativePool").ok()) return;
  is_closed_.store(true, std::memory_order_relaxed);
  if (steppers_) steppers_->stop();
}

}  // namespace reverie
