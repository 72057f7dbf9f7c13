#include "reverie/env/native_pool.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <system_error>
#include <thread>
#include <utility>

#include "reverie/base/cpu_pause.h"
#include "reverie/base/mutex.h"
#include "reverie/os/futex.h"

namespace reverie {
namespace {

constexpr Duration kSignalInterval = std::chrono::milliseconds(50);
constexpr Duration kLookTime = std::chrono::microseconds(25);  // what waking a thread takes
constexpr std::size_t kRowsAtOnceMax = 1024;  // a waiter that steps them looks for signals after
constexpr std::size_t kAlignment = 64;        // each array starts a cache line

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

// Looks for a while whether `is_there`, before the caller sleeps.
template <typename F>
void look_for(F&& is_there) {
  constexpr int kLooks = 16;  // between two looks at the clock
  const TimePoint end = Clock::system().now() + kLookTime;
  do {
    for (int i = 0; i < kLooks; ++i) {
      if (is_there()) return;
      cpu_pause();
    }
  } while (Clock::system().now() < end);
}

}  // namespace

// The threads of a pool, and the batches that wait for them.
//
// Each stepper has rows of its own, so that an environment is stepped on the core whose cache has
// it; one that is done takes from the end of whoever has most left.
//
// Whoever waits for a batch steps rows of it too: it is awake already, and its core would be idle.
// What is left then are rows that others are at, or the next batch that the program is about to
// hand over; both take less than waking a thread, so all look for a while before they sleep.
class NativePool::Crew {
 public:
  // `stepper_count` is how many step a batch together, waiters among them.
  Crew(Clock& clock, std::size_t env_count, std::size_t stepper_count)
      : clock_(clock),
        env_count_(env_count),
        stepper_count_(stepper_count),
        waiters_help_(stepper_count > 1) {}
  ~Crew() { stop(); }
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  Status start(std::size_t thread_count);

  // False once stop() was called: nobody will run it.
  bool hand_over(Batch& batch);
  // DEADLINE_EXCEEDED or CANCELLED leave it under way.
  Status wait(Batch& batch, TimePoint deadline, const std::function<bool()>& interrupted);
  // Lets what was handed over be done, and ends the threads. Idempotent.
  void stop();

 private:
  // Takes rows that are free. Requires that there are some.
  FreeRows take_rows(Batch& batch, std::size_t stepper) const REVERIE_REQUIRES(mutex_);
  // Takes and steps some, with the lock let go meanwhile. Requires that there are some.
  void run_some(Batch& batch, std::size_t stepper) REVERIE_REQUIRES(mutex_);
  void work(std::size_t stepper);

  static bool is_running(const Batch& batch) {
    return batch.phase.load(std::memory_order_acquire) == Phase::kRunning;
  }

  Clock& clock_;
  const std::size_t env_count_;
  const std::size_t stepper_count_;
  const bool waiters_help_;
  Mutex mutex_;
  CondVar work_;
  CondVar done_;
  std::deque<Batch*> queue_ REVERIE_GUARDED_BY(mutex_);  // those that have rows nobody is at
  std::atomic<bool> has_work_{false};                    // whether queue_ holds any, for a look
  bool is_stopping_ REVERIE_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
  Mutex stop_mutex_;
};

Status NativePool::Crew::start(std::size_t thread_count) {
  try {
    const std::size_t first = waiters_help_ ? 1 : 0;  // who waits is stepper 0
    for (std::size_t i = 0; i < thread_count; ++i) {
      threads_.emplace_back([this, stepper = first + i] { work(stepper); });
    }
  } catch (const std::system_error& error) {
    return resource_exhausted("thread {} of {} cannot be started: {}; ask for fewer",
                              threads_.size() + 1, thread_count, error.what());
  }
  return {};
}

bool NativePool::Crew::hand_over(Batch& batch) {
  {
    MutexLock lock(mutex_);
    if (is_stopping_) return false;
    batch.free_rows.resize(stepper_count_);
    for (std::size_t i = 0; i < stepper_count_; ++i) {
      batch.free_rows[i] = {i * env_count_ / stepper_count_, (i + 1) * env_count_ / stepper_count_};
    }
    batch.free_count = env_count_;
    batch.rows_left = env_count_;
    queue_.push_back(&batch);
    has_work_.store(true, std::memory_order_relaxed);
  }
  work_.notify_all();
  return true;
}

NativePool::FreeRows NativePool::Crew::take_rows(Batch& batch, std::size_t stepper) const {
  // Large pieces at first, since each is taken under the lock; single rows at last, so that all end
  // together.
  const auto piece = [](const FreeRows& rows) {
    return std::clamp<std::size_t>(rows.count() / 4, 1, kRowsAtOnceMax);
  };
  FreeRows& own = batch.free_rows[stepper];
  if (own.count() > 0) {
    const std::size_t begin = std::exchange(own.begin, own.begin + piece(own));
    return {begin, own.begin};
  }
  FreeRows& most =
      *std::max_element(batch.free_rows.begin(), batch.free_rows.end(),
                        [](const FreeRows& a, const FreeRows& b) { return a.count() < b.count(); });
  const std::size_t end = std::exchange(most.end, most.end - piece(most));
  return {most.end, end};
}

void NativePool::Crew::run_some(Batch& batch, std::size_t stepper) {
  const auto [begin, end] = take_rows(batch, stepper);
  batch.free_count -= end - begin;
  if (batch.free_count == 0) {
    queue_.erase(std::find(queue_.begin(), queue_.end(), &batch));
    has_work_.store(!queue_.empty(), std::memory_order_relaxed);
  }
  mutex_.unlock();
  run(batch, begin, end, batch.actions.data());
  mutex_.lock();
  batch.rows_left -= end - begin;
  if (batch.rows_left == 0) {
    batch.phase.store(Phase::kReady, std::memory_order_release);
    done_.notify_all();
  }
}

Status NativePool::Crew::wait(Batch& batch, TimePoint deadline,
                              const std::function<bool()>& interrupted) {
  TimePoint look = clock_.now() + kSignalInterval;
  while (true) {
    look_for([&] { return has_work_.load(std::memory_order_relaxed) || !is_running(batch); });
    const TimePoint now = clock_.now();
    {
      MutexLock lock(mutex_);
      if (!is_running(batch)) return {};
      if (now >= deadline) {
        return deadline_exceeded("the step takes longer: {} of {} environments are left",
                                 batch.rows_left, env_count_);
      }
      if (waiters_help_ && batch.free_count > 0) {
        run_some(batch, 0);
      } else if (now < look) {
        clock_.wait_until(done_, mutex_, std::min(deadline, look));
      }
    }
    if (now < look) continue;
    look = now + kSignalInterval;
    if (interrupted && interrupted()) return cancelled("the wait was interrupted");
  }
}

void NativePool::Crew::work(std::size_t stepper) {
  MutexLock lock(mutex_);
  while (true) {
    if (!queue_.empty()) {
      run_some(*queue_.front(), stepper);
      continue;
    }
    if (is_stopping_) return;
    mutex_.unlock();
    look_for([&] { return has_work_.load(std::memory_order_relaxed); });
    mutex_.lock();
    if (queue_.empty() && !is_stopping_) work_.wait(mutex_);
  }
}

void NativePool::Crew::stop() {
  MutexLock stopping(stop_mutex_);  // of two that stop it the second waits for the first
  {
    MutexLock lock(mutex_);
    is_stopping_ = true;
  }
  work_.notify_all();
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
}

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
  // A single environment gains nothing from another thread: it would wait for being woken.
  const bool wants_threads = is_costly && std::min(cores, rows) > 1;
  const std::size_t threads = pool.thread_count.value_or(wants_threads ? std::min(cores, rows) : 0);
  if (threads > 0) {
    made->crew_ = std::make_unique<Crew>(*pool.clock, pool.env_count, threads);
    REVERIE_RETURN_IF_ERROR(made->crew_->start(std::max<std::size_t>(1, threads - 1)));
    made->thread_count_ = threads;
  }
  return made;
}

NativePool::~NativePool() {
  if (fork_guard_.check("pool").ok()) return;
  // In a forked child the threads stayed with the parent: there is nobody to join, what they held
  // stays held, and an environment may be half through a step.
  (void)crew_.release();
  for (auto& batch : batches_) (void)batch.release();
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
          "the last step of this batch is done, but nobody took it; call "
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
  if (crew_ && batch.phase.load(std::memory_order_acquire) == Phase::kRunning) {
    REVERIE_RETURN_IF_ERROR(crew_->wait(batch, deadline, interrupted));
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
  if (crew_ && batch.phase.load(std::memory_order_acquire) == Phase::kRunning) {
    REVERIE_RETURN_IF_ERROR(crew_->wait(batch, deadline, interrupted));
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
          "the episode of environment {} is over, and this pool resets none by itself; reset it "
          "first, with a reset_mask that has it",
          over - batch.is_over.begin());
    }
  }
  REVERIE_RETURN_IF_ERROR(claim(batch, is_reset));
  return start(batch, actions);
}

Status NativePool::start(Batch& batch, std::span<const std::byte> actions) {
  if (!crew_) {
    run(batch, 0, env_count(), actions.data());
    batch.phase.store(Phase::kReady, std::memory_order_release);
    return {};
  }
  batch.actions.assign(actions.begin(), actions.end());
  if (crew_->hand_over(batch)) return {};
  batch.phase.store(Phase::kNew, std::memory_order_release);
  return check_usable();  // closed since this call began
}

bool NativePool::done(std::size_t batch) const {
  return batches_[batch]->phase.load(std::memory_order_acquire) != Phase::kRunning;
}

Status NativePool::wait(std::size_t index, TimePoint deadline,
                        const std::function<bool()>& interrupted) {
  REVERIE_RETURN_IF_ERROR(fork_guard_.check("NativePool"));
  REVERIE_RETURN_IF_ERROR(check_index(index));
  Batch& batch = *batches_[index];
  if (batch.phase.load(std::memory_order_acquire) == Phase::kRunning && crew_) {
    REVERIE_RETURN_IF_ERROR(crew_->wait(batch, deadline, interrupted));
  }
  Phase phase = Phase::kReady;
  batch.phase.compare_exchange_strong(phase, Phase::kIdle, std::memory_order_acq_rel);
  switch (phase) {
    case Phase::kNew:
      return failed_precondition("nothing of batch {} is under way; call reset() first", index);
    case Phase::kRunning:  // by another thread, which stepped it inline or looks at its state
      return failed_precondition("another thread steps batch {}; give each thread its own", index);
    default:
      return {};  // of two that wait for one step both get it
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
  batch.phase.store(before, std::memory_order_release);
  return status;
}

Result<Canvas> NativePool::draw(std::size_t index, std::size_t env) {
  if (spec().picture_width == 0) return unimplemented("{} draws no picture", spec().id);
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
  if (crew_) crew_->stop();
}

}  // namespace reverie
