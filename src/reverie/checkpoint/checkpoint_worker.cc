// Tested in checkpoint_worker_test.cc, tests/sim/checkpoint_sim_test.cc and
// tests/python/checkpoint_test.py.
#include "reverie/checkpoint/checkpoint_worker.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "reverie/base/log.h"
#include "reverie/base/waiting.h"
#include "reverie/service/blocking.h"
#include "reverie/service/served_checkpoints.h"

namespace reverie::checkpoint {
namespace {

// How often the inserts are counted.
constexpr Duration kCountInterval = std::chrono::milliseconds(250);
// If the journal cannot be written, a checkpoint is tried at this interval.
constexpr Duration kHealInterval = std::chrono::seconds(5);
// The pause after a checkpoint that failed, before the journal's size asks for another one. Each
// such checkpoint writes the whole store again.
constexpr Duration kPauseMin = std::chrono::seconds(1);
constexpr Duration kPauseMax = std::chrono::minutes(1);

// Where the path arrives. Shared by the waiting and the completing thread.
struct Arrival {
  Mutex mutex;
  CondVar changed;
  std::optional<Result<std::string>> path REVERIE_GUARDED_BY(mutex);
};

}  // namespace

CheckpointWorker::CheckpointWorker(LocalService& store, std::unique_ptr<Checkpointer> checkpointer,
                                   const WorkerOptions& options)
    : store_(store),
      checkpointer_(std::move(checkpointer)),
      options_(options),
      clock_(options.clock != nullptr ? *options.clock : Clock::system()),
      last_time_(clock_.now()),
      last_inserts_(inserts()) {}

Result<std::unique_ptr<CheckpointWorker>> CheckpointWorker::open(
    LocalService& store, std::unique_ptr<Checkpointer> checkpointer, const WorkerOptions& options) {
  std::unique_ptr<CheckpointWorker> worker(
      new CheckpointWorker(store, std::move(checkpointer), options));
  const bool looks = options.every_inserts > 0 || store.log() != nullptr;
  if (looks || options.every_time > Duration::zero()) {
    const MutexLock lock(worker->mutex_);
    REVERIE_RETURN_IF_ERROR(worker->start());
  }
  return worker;
}

// In a forked child the thread belongs to the parent, and the lock may stay locked.
CheckpointWorker::~CheckpointWorker() REVERIE_NO_THREAD_SAFETY_ANALYSIS {
  if (fork_guard_.check("store").ok()) {
    stop();
  } else {
    leave_to_parent(std::move(thread_));
  }
}

Status CheckpointWorker::start() {
  if (thread_.joinable()) return {};
  REVERIE_ASSIGN_OR_RETURN(
      thread_, start_thread("checkpoints", [this] { own_thread_.run([this] { run(); }); }));
  return {};
}

StoreOrigin CheckpointWorker::origin() const {
  const std::vector<std::byte>& payload = checkpointer_->loaded_payload();
  return {loaded_, std::string(reinterpret_cast<const char*>(payload.data()), payload.size())};
}

RequestId CheckpointWorker::checkpoint(std::vector<std::byte> payload, Done done) {
  if (Status status = check_user_payload(payload.size()); !status.ok()) {
    done(std::move(status));
    return 0;
  }
  Status refused;
  {
    const MutexLock lock(mutex_);
    const std::size_t waiting = requests_.size() - (written_id_ != 0 ? 1 : 0);
    if (is_stopped_) {
      refused = cancelled("the store is closed");
    } else if (waiting >= kWaitingMax) {
      refused = resource_exhausted(
          "{} checkpoints wait to be written, and the bound is {}; wait until one of them is "
          "written, and ask again",
          waiting, kWaitingMax);
    } else {
      refused = start();
    }
    if (refused.ok()) {
      const RequestId id = kCheckpointIds | ++last_id_;
      requests_.push_back({id, std::move(payload), std::move(done)});
      changed_.notify_all();
      return id;
    }
  }
  done(std::move(refused));
  return 0;
}

void CheckpointWorker::cancel(RequestId id) {
  Done done;
  {
    const MutexLock lock(mutex_);
    const auto found = std::ranges::find(requests_, id, &Request::id);
    if (found == requests_.end()) return;
    done = std::exchange(found->done, nullptr);
    if (id == written_id_) {
      is_cancelled_ = true;
    } else {
      requests_.erase(found);
    }
  }
  if (done) done(cancelled("the call was cancelled; the checkpoint is given up"));
}

void CheckpointWorker::abandon() {
  const MutexLock lock(mutex_);
  is_stopped_ = true;
  is_cancelled_ = true;
  changed_.notify_all();
}

void CheckpointWorker::stop() {
  abandon();
  std::thread thread;
  {
    const MutexLock lock(mutex_);
    thread = std::move(thread_);
  }
  if (thread.joinable()) thread.join();
  checkpointer_->release();
}

std::int64_t CheckpointWorker::inserts() const {
  std::int64_t count = 0;
  const auto infos = info_and_wait(store_);
  if (!infos.ok()) return 0;
  for (const TableInfo& info : *infos) count += info.inserts;
  return count;
}

bool CheckpointWorker::is_due(TimePoint now) {
  if (options_.every_time > Duration::zero() && now - last_time_ >= options_.every_time) {
    return true;
  }
  if (StoreLog* const log = store_.log()) {
    if (log->size_bytes() >= options_.every_journal_bytes && now >= paused_until_) return true;
    if (!log->check().ok() && now - last_time_ >= kHealInterval) return true;
  }
  if (options_.every_inserts <= 0) return false;
  const std::int64_t count = inserts();
  last_inserts_ = std::min(last_inserts_, count);  // a table was reset
  return count - last_inserts_ >= options_.every_inserts;
}

void CheckpointWorker::run() {
  while (true) {
    std::vector<std::byte> payload;
    bool is_asked = false;
    {
      const MutexLock lock(mutex_);
      TimePoint until = TimePoint::max();
      if (options_.every_time > Duration::zero()) until = last_time_ + options_.every_time;
      if (options_.every_inserts > 0 || store_.log() != nullptr) {
        until = std::min(until, clock_.now() + kCountInterval);
      }
      while (requests_.empty() && !is_stopped_) {
        if (!clock_.wait_until(changed_, mutex_, until)) break;
      }
      if (is_stopped_) break;
      is_cancelled_ = false;
      if (!requests_.empty()) {
        is_asked = true;
        written_id_ = requests_.front().id;
        payload = std::move(requests_.front().payload);
      }
    }
    if (!is_asked && !is_due(clock_.now())) continue;
    const TimePoint begun = clock_.now();
    const std::int64_t begun_inserts = options_.every_inserts > 0 ? inserts() : 0;
    const Result<Written> written = checkpointer_->write(store_, payload, &is_cancelled_);
    last_time_ = begun;
    last_inserts_ = begun_inserts;
    if (written.ok()) {
      pause_ = Duration::zero();
    } else if (written.status().code() != StatusCode::kCancelled) {
      pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
    }
    paused_until_ = clock_.now() + pause_;
    if (!written.ok() && !is_asked && written.status().code() != StatusCode::kCancelled) {
      log_warning("a checkpoint could not be written: {}", written.status().message());
    }
    Done done;
    if (is_asked) {
      const MutexLock lock(mutex_);
      done = std::move(requests_.front().done);
      requests_.pop_front();
      written_id_ = 0;
    }
    if (!done) continue;
    if (written.ok()) {
      done(written->folder);
    } else {
      done(written.status());
    }
  }
  // No further requests are accepted.
  std::deque<Request> left;
  {
    const MutexLock lock(mutex_);
    left.swap(requests_);
  }
  for (const Request& request : left) {
    if (request.done) request.done(cancelled("the store was closed"));
  }
}

Result<std::shared_ptr<LocalService>> open_checkpointed(std::vector<TableOptions> tables,
                                                        const StoreOptions& store,
                                                        const WorkerOptions& options) {
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<Checkpointer> checkpointer,
                           Checkpointer::open(options.path, options.checkpointer));
  std::string loaded;
  REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<LocalService> service,
                           checkpointer->open_store(std::move(tables), store, &loaded));
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<CheckpointWorker> worker,
                           CheckpointWorker::open(*service, std::move(checkpointer), options));
  worker->set_loaded(std::move(loaded));
  service->set_checkpoints(std::move(worker));
  return service;
}

Result<std::string> checkpoint_and_wait(LocalService& store, std::span<const std::byte> payload,
                                        const std::function<bool()>& interrupted) {
  const auto arrival = std::make_shared<Arrival>();
  const RequestId id = store.checkpoint(payload, [arrival](Result<std::string> path) {
    const MutexLock lock(arrival->mutex);
    arrival->path = std::move(path);
    arrival->changed.notify_all();
  });
  Clock& clock = Clock::system();
  bool is_cancelled = false;
  while (true) {
    {
      const TimePoint until = clock.now() + kInterruptInterval;
      const MutexLock lock(arrival->mutex);
      while (!arrival->path) {
        if (!clock.wait_until(arrival->changed, arrival->mutex, until)) break;
      }
      if (arrival->path) return *arrival->path;
    }
    if (!is_cancelled && interrupted && interrupted()) {
      is_cancelled = true;
      store.cancel(id);
    }
  }
}

}  // namespace reverie::checkpoint
