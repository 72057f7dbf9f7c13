// The owner's side of a pool of worker processes, in Python.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/env_results.h"
#include "reverie/base/fork.h"
#include "reverie/env/watched_pool.h"
#include "reverie/os/shared_memory.h"

namespace reverie::python {

namespace nb = nanobind;

// The options that a pool's Python part sets once.
struct PoolOptions {
  double timeout_s = 60.0;
  std::optional<std::int64_t> action_count;  // of discrete actions
  bool is_ready_mode = false;                // batches of the first ready environments
  std::size_t result_rows = 0;               // then: of one result
};

class EnvPoolCore {
 public:
  EnvPoolCore(std::shared_ptr<PoolWorkers> workers, SharedMemory memory, SharedLayout layout,
              Duration spin, PoolOptions options);
  ~EnvPoolCore();
  EnvPoolCore(const EnvPoolCore&) = delete;
  EnvPoolCore& operator=(const EnvPoolCore&) = delete;

  int memory_fd() const { return memory_->fd(); }
  const SharedView& view() const { return pool_.view(); }

  // How result() returns the rows: as `batch_class`, with nests according to `structure`.
  void set_results(nb::object batch_class, std::string structure, bool is_copied);
  // Called with a worker's number if it or one of its environments has failed; true if it was
  // restarted and the wait continues.
  void set_on_failure(nb::object callback) { on_failure_ = std::move(callback); }

  // Returns a sequence number; in ready mode 0.
  std::uint32_t step(nb::handle actions, nb::handle batch, nb::handle env_ids);
  std::uint32_t reset(nb::handle seed, nb::handle batch);
  bool is_done(std::size_t batch, std::uint32_t sequence);
  nb::object result(std::size_t batch, std::uint32_t sequence, nb::handle timeout_s);

  void restart(std::size_t worker);
  // At the program's end (`at_exit`), calls of other threads then sleep forever instead of raising.
  void close(double timeout_s, bool at_exit);
  // The error text of calls after close(). Requires the interpreter's lock.
  void set_closed_text(std::string text) { closed_text_ = std::move(text); }
  bool is_closed() const { return is_closed_; }

 private:
  void check() const;
  std::size_t batch_argument(nb::handle batch) const;
  void write_actions(nb::handle actions, std::size_t batch, std::span<const std::int32_t> envs);
  std::vector<std::int32_t> env_argument(nb::handle env_ids) const;
  [[noreturn]] void raise_env_error(const PoolFailure& failure) const;
  // Raises the error of a wait, or `raised` by its callback; returns if the rows are there.
  void unwrap_wait(const WatchedPool::WaitResult& waited, const std::exception_ptr& raised) const;
  // `raised` gets the callback's exception, and must outlive the waiter.
  WatchedPool::Waiter waiter(std::exception_ptr& raised);

  std::shared_ptr<SharedMemory> memory_;
  SharedPool pool_;
  std::shared_ptr<PoolWorkers> workers_;
  WatchedPool watched_;
  PoolOptions options_;
  ForkGuard fork_guard_;
  std::atomic<bool> is_closed_{false};
  std::optional<std::thread::id> ending_thread_;  // set before is_closed_, if at the program's end
  std::string closed_text_ =
      "this pool is gone, since the program kept no name for it; keep one as long as results are "
      "wanted";
  std::shared_ptr<EnvResults> results_;
  nb::object on_failure_ = nb::none();
};

}  // namespace reverie::python
