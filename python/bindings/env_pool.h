// The owner's side of a pool of worker processes, as Python holds it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/env_results.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/env/shared_pool.h"
#include "reverie/os/child_process.h"
#include "reverie/os/shared_memory.h"

namespace reverie::python {

namespace nb = nanobind;

// What a pool's Python half settles once.
struct PoolOptions {
  double timeout_s = 60.0;
  std::optional<std::int64_t> action_count;  // of discrete actions
  bool is_ready_mode = false;                // batches of those that are ready first
  std::size_t result_rows = 0;               // then: of one result
};

// The child processes of a pool; or, of one whose workers are threads of this process, what is
// known of them. Thread-safe.
class Workers {
 public:
  explicit Workers(std::size_t count) : children_(count), threads_(count) {}

  // Starts one, in the place of an earlier one, which is killed.
  Result<int> start(std::size_t worker, const ChildProcess::Options& options);
  // How it ended, or nothing while it lives.
  std::optional<std::string> end_text(std::size_t worker);
  std::optional<int> pid(std::size_t worker);
  // A worker is a thread: it lives until `end_text` says how it ended.
  void set_thread(std::size_t worker, std::optional<std::string> end_text);
  // Waits for all to end, then kills those that have not.
  void end_all(Duration at_most);

 private:
  struct Thread {
    bool is_there = false;
    std::optional<std::string> end_text;
  };

  Mutex mutex_;
  std::vector<std::optional<ChildProcess>> children_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Thread> threads_ REVERIE_GUARDED_BY(mutex_);
};

class EnvPoolCore {
 public:
  EnvPoolCore(std::shared_ptr<Workers> workers, SharedMemory memory, SharedLayout layout,
              Duration spin, PoolOptions options);
  ~EnvPoolCore();
  EnvPoolCore(const EnvPoolCore&) = delete;
  EnvPoolCore& operator=(const EnvPoolCore&) = delete;

  int memory_fd() const { return memory_->fd(); }
  const SharedView& view() const { return pool_.view(); }

  // How result() gives the rows: as `batch_class`, with nests folded by `structure`.
  void set_results(nb::object batch_class, std::string structure, bool is_copied);
  // Called with a worker's number when it or an environment of it has failed; true if it was
  // restarted and the wait goes on.
  void set_on_failure(nb::object callback) { on_failure_ = std::move(callback); }

  // Gives a sequence number; in ready mode 0.
  std::uint32_t step(nb::handle actions, nb::handle batch, nb::handle env_ids);
  std::uint32_t reset(nb::handle seed, nb::handle batch);
  bool is_done(std::size_t batch, std::uint32_t sequence);
  nb::object result(std::size_t batch, std::uint32_t sequence, nb::handle timeout_s);

  void restart(std::size_t worker);
  // At the program's end, calls of other threads sleep from then on: there is nobody to raise to.
  void close(double timeout_s, bool at_exit);
  // What calls after close() are refused with. Under the interpreter's lock.
  void set_closed_text(std::string text) { closed_text_ = std::move(text); }
  bool is_closed() const { return is_closed_; }

 private:
  void check() const;
  std::size_t batch_argument(nb::handle batch) const;
  void write_actions(nb::handle actions, std::size_t batch, std::span<const std::int32_t> envs);
  void check_discrete(const std::int64_t* actions, std::size_t count) const;
  std::vector<std::int32_t> env_argument(nb::handle env_ids) const;
  // A worker that was asked for something and has ended.
  std::optional<std::size_t> dead_worker(std::size_t batch);
  // Raises, or returns if what failed was restarted.
  void handle_dead(std::size_t worker);
  void handle_raised(const EnvFailure& failure);
  [[noreturn]] void raise_env_error(const std::string& text, nb::object batch, nb::object env,
                                    std::size_t worker, const std::string& traceback) const;
  bool may_go_on(std::size_t worker);

  std::shared_ptr<SharedMemory> memory_;
  SharedPool pool_;
  std::shared_ptr<Workers> workers_;
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
