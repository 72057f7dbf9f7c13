#include "reverie/env/watched_pool.h"

#include <utility>

#include "reverie/base/format.h"

namespace reverie {
namespace {

// What has no pool of its own replaces the remedies: python/reverie/envs/remedies.py.
PoolFailure describe_raised(const EnvFailure& failure, bool are_threads) {
  PoolFailure made{failure.worker, failure.batch, failure.env, "", failure.text};
  if (made.traceback.empty()) {
    made.traceback =
        "its traceback is not kept: it raised earlier and was not reset since, or while another "
        "environment's was unread";
  }
  const std::string restart =
      are_threads ? std::string() : format("pool.restart({}) or ", failure.worker);
  made.text =
      format("environment {} of batch {}, in worker {}, raised; {}pool.reset() makes it again:\n{}",
             failure.env, failure.batch, failure.worker, restart, made.traceback);
  return made;
}

}  // namespace

std::optional<std::size_t> WatchedPool::dead_worker(std::size_t batch) const {
  for (const std::size_t worker : pool_.late_workers(batch)) {
    if (workers_.end_text(worker)) return worker;
  }
  return std::nullopt;
}

PoolFailure WatchedPool::describe_dead(std::size_t worker) const {
  const std::string how = workers_.end_text(worker).value_or("ended");
  PoolFailure failure;
  failure.worker = worker;
  std::string where;
  if (const auto at = pool_.position(worker)) {
    failure.batch = at->first;
    failure.env = at->second;
    where = format(" while it stepped environment {} of batch {}", at->second, at->first);
  }
  const std::string remedy =
      workers_.are_threads()
          ? "make another pool"
          : format("pool.restart({}) replaces it, and the result can be taken then", worker);
  failure.text = format("worker {} {}{}; {}", worker, how, where, remedy);
  return failure;
}

bool WatchedPool::is_replaced(const PoolFailure& failure, const Waiter& waiter) {
  return waiter.replaced && waiter.replaced(failure.worker);
}

std::optional<WatchedPool::WaitResult> WatchedPool::conclude(std::size_t batch, Status status,
                                                             bool is_stopped,
                                                             const Waiter& waiter) const {
  const auto dead = is_stopped ? std::nullopt : dead_worker(batch);
  if (!dead) {
    const bool may_restart =
        status.code() == StatusCode::kDeadlineExceeded && !workers_.are_threads();
    if (may_restart) status = deadline_exceeded("{}, or restart the worker", status.message());
    return WaitResult{std::move(status)};
  }
  PoolFailure failure = describe_dead(*dead);
  if (is_replaced(failure, waiter)) return std::nullopt;
  return WaitResult{std::move(status), std::move(failure)};
}

WatchedPool::WaitResult WatchedPool::wait(std::size_t batch, std::uint32_t sequence,
                                          TimePoint deadline, const Waiter& waiter,
                                          std::vector<std::int32_t>& ready) {
  bool is_stopped = false;
  const SharedPool::Check go_on = [&] {
    is_stopped = is_stopped || !waiter.may_go_on();
    return !is_stopped && !dead_worker(batch);
  };
  while (true) {
    if (ready_rows_ > 0 && pool_.in_flight_count() < ready_rows_) {
      return {failed_precondition(
          "{} environments are in flight and a result holds {}; step some more first",
          pool_.in_flight_count(), ready_rows_)};
    }
    Status waited = ready_rows_ > 0 ? pool_.wait_ready(ready_rows_, deadline, go_on, ready)
                                    : pool_.wait(batch, sequence, deadline, go_on);
    if (!waited.ok()) {
      if (auto told = conclude(batch, std::move(waited), is_stopped, waiter))
        return std::move(*told);
      continue;
    }
    const auto raised = pool_.failure(batch);
    if (!raised || (ready_rows_ > 0 && !ready.empty())) return {};
    PoolFailure failure = describe_raised(*raised, workers_.are_threads());
    if (!is_replaced(failure, waiter)) return {{}, std::move(failure)};
  }
}

WatchedPool::WaitResult WatchedPool::drain(Duration limit, const Waiter& waiter) {
  bool is_stopped = false;
  const SharedPool::Check go_on = [&] {
    is_stopped = is_stopped || !waiter.may_go_on();
    return !is_stopped && !dead_worker(0);
  };
  while (true) {
    Status drained = pool_.drain(Clock::system().now() + limit, go_on);
    if (drained.ok()) return {};
    if (auto told = conclude(0, std::move(drained), is_stopped, waiter)) return std::move(*told);
  }
}

}  // namespace reverie
