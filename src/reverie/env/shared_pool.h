// The owner's side of a pool of environments in shared memory: it posts steps and waits for rows.
//
// Workers run a WorkerPort over the same memory: processes, or threads in a test. This class does
// not know about processes; the caller finds out whether a worker is alive, in the `check` of a
// wait, and replaces a dead one with restart().
//
// Use it in one of two ways. Whole batches: post(), wait(), with one command in flight per batch
// and worker. Or, for one batch, the environments that are ready first: post_envs(), wait_ready().
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/env/shared_view.h"

namespace reverie {

// An environment that raised.
struct EnvFailure {
  std::size_t batch = 0;
  std::size_t env = 0;
  std::size_t worker = 0;
  std::string text;  // the worker's message, or empty
};

// Thread-safe; only one thread at a time may wait for a batch.
class SharedPool {
 public:
  // Called about twenty times a second while a call waits, without a lock; false ends the wait with
  // CANCELLED.
  using Check = std::function<bool()>;

  // `spin` is how long a wait polls before it sleeps.
  SharedPool(SharedView view, Duration spin);

  const SharedView& view() const { return view_; }

  // Asks every worker for a step of its environments of `batch`, with the actions written there, or
  // for a reset. Returns the sequence number to wait for. FAILED_PRECONDITION for a step while one
  // is in flight; a reset overtakes it.
  Result<std::uint32_t> post(std::size_t batch, PoolOp op, std::optional<std::int64_t> seed = {});
  // Ok if a step may be posted, so that the batch's action rows may be written.
  Status check_idle(std::size_t batch) const;
  bool is_done(std::size_t batch, std::uint32_t sequence) const;
  // Waits for the rows of `sequence`, and takes them: then the next step may be posted, unless an
  // environment raised (see failure()); in that case only a reset or a restart frees the batch.
  // DEADLINE_EXCEEDED, naming the workers that are late; CANCELLED; FAILED_PRECONDITION if a later
  // reset has overtaken it. After the first two it may be waited for again.
  Status wait(std::size_t batch, std::uint32_t sequence, TimePoint deadline, const Check& check);

  // Asks for a step or reset of some environments of batch 0, whose action rows must be written.
  // FAILED_PRECONDITION, naming it, if one of them is in flight; then nothing is posted.
  Status post_envs(std::span<const std::int32_t> envs, PoolOp op,
                   std::optional<std::int64_t> seed = {});
  Status check_idle(std::span<const std::int32_t> envs);
  std::size_t in_flight_count() const;
  bool are_ready(std::size_t count);
  // Waits until `count` environments are ready and appends their ids to `ready`, in the order in
  // which they completed. Appends none if one in flight has raised.
  Status wait_ready(std::size_t count, TimePoint deadline, const Check& check,
                    std::vector<std::int32_t>& ready);

  // Waits until nothing is in flight, except environments that raised, and forgets what is ready.
  Status drain(TimePoint deadline, const Check& check);

  // The first environment of the batch that raised and was not reset yet, if any.
  std::optional<EnvFailure> failure(std::size_t batch) const;
  // The environment that a worker is stepping, as (batch, env), if any.
  std::optional<std::pair<std::size_t, std::size_t>> position(std::size_t worker) const;
  // The workers that have not finished their commands.
  std::vector<std::size_t> late_workers(std::size_t batch) const;

  // Replaces a worker by a new one: commands whose results were not taken are posted again, and its
  // environments begin new episodes. Rows that the old one has completed for such a step stay
  // (WorkerPort::is_complete). REQUIRES: the old worker has ended.
  void restart(std::size_t worker);
  // Asks every worker to end.
  void stop();

 private:
  struct BatchState {
    std::uint32_t sequence = 0;
    PoolOp op = PoolOp::kReset;
    bool is_in_flight = false;
  };

  void push(std::size_t worker, const PoolCommand& command) REVERIE_REQUIRES(mutex_);
  void wake(std::size_t worker);
  void set_seed(std::size_t batch, std::optional<std::int64_t> seed);
  Status refuse_if_in_flight(std::size_t batch) const REVERIE_REQUIRES(mutex_);
  Status refuse_if_in_flight(std::span<const std::int32_t> envs) REVERIE_REQUIRES(mutex_);
  // The number of workers that are not done with `sequence`.
  std::size_t missing(std::size_t batch, std::uint32_t sequence) const;
  // The state of the first environment that raised, or null.
  const std::byte* first_broken(std::size_t batch) const;
  // Takes the workers' ready environments. Returns whether one has raised.
  bool collect() REVERIE_REQUIRES(mutex_);
  Status late(std::size_t batch) const;
  // Waits until `missing()`, which is called without a lock, returns 0.
  Status wait_for_arrivals(std::size_t batch, const std::function<std::size_t()>& missing,
                           TimePoint deadline, const Check& check);

  SharedView view_;
  Duration spin_;
  mutable Mutex mutex_;
  std::vector<BatchState> batches_ REVERIE_GUARDED_BY(mutex_);
  // For batch 0, if its environments are posted singly.
  std::vector<std::optional<PoolOp>> in_flight_ REVERIE_GUARDED_BY(mutex_);
  // In flight still, but its worker is done with it.
  std::vector<bool> has_raised_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::uint32_t> collected_ REVERIE_GUARDED_BY(mutex_);  // by worker
  std::vector<std::int32_t> ready_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
