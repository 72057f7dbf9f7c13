// CheckpointWorker: writes a store's checkpoints on its own thread, on request and
// periodically.
//
//     auto store = open_checkpointed(tables, store_options, {.path = "/data/replay"});
//     (*store)->checkpoint(payload, done)          done("/data/replay/checkpoint-0000000001")
//
// The store owns its worker. Closing the store aborts a checkpoint being written, without a trace.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/start_thread.h"
#include "reverie/checkpoint/checkpointer.h"

namespace reverie::checkpoint {

struct WorkerOptions {
  // A folder of checkpoints, or one of them; see Checkpointer::open().
  std::string path;
  CheckpointerOptions checkpointer = {};
  // Writes a checkpoint when this much time has passed, or this many items were inserted, since the
  // last. Zero: never.
  Duration every_time = Duration::zero();
  std::int64_t every_inserts = 0;
  // Also when the journal has grown so large, since a restart replays it. If that fails, it is
  // tried again after a pause that doubles each time, up to a minute.
  std::uint64_t every_journal_bytes = std::uint64_t{1} << 30;
  Clock* clock = nullptr;  // of these times; null: the system's; outlives the worker
};

class CheckpointWorker final : public StoreCheckpoints {
 public:
  // Requests that may wait behind the one that is being written. Each holds a payload of up to
  // 16 MiB.
  static constexpr std::size_t kWaitingMax = 8;

  // `store` outlives it. Its thread starts now if it has to look whether a checkpoint is due, else
  // with the first request. RESOURCE_EXHAUSTED if the system has no more threads.
  static Result<std::unique_ptr<CheckpointWorker>> open(LocalService& store,
                                                        std::unique_ptr<Checkpointer> checkpointer,
                                                        const WorkerOptions& options);
  ~CheckpointWorker() override;

  // RESOURCE_EXHAUSTED if kWaitingMax requests wait already.
  RequestId checkpoint(std::vector<std::byte> payload, Done done) override;
  // Completes at once. A checkpoint being written for it is abandoned, unless published already.
  void cancel(RequestId id) override;
  void abandon() override;
  void stop() override;
  bool is_own_thread() const override { return own_thread_.is_current(); }
  StoreOrigin origin() const override;
  void set_loaded(std::string path) { loaded_ = std::move(path); }

 private:
  struct Request {
    RequestId id;
    std::vector<std::byte> payload;
    Done done;  // null once it was cancelled while it is being written
  };

  CheckpointWorker(LocalService& store, std::unique_ptr<Checkpointer> checkpointer,
                   const WorkerOptions& options);
  void run();
  // Starts the thread, unless it runs.
  Status start() REVERIE_REQUIRES(mutex_);
  // Whether a periodic checkpoint is due.
  bool is_due(TimePoint now);
  std::int64_t inserts() const;

  LocalService& store_;
  const std::unique_ptr<Checkpointer> checkpointer_;
  const WorkerOptions options_;
  Clock& clock_;
  std::string loaded_;
  Mutex mutex_;
  CondVar changed_;
  std::deque<Request> requests_ REVERIE_GUARDED_BY(mutex_);
  // The first request, while it is being written; 0 while none or a periodic checkpoint is.
  RequestId written_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ REVERIE_GUARDED_BY(mutex_) = false;
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::atomic<bool> is_cancelled_{false};  // for the one being written
  // Only the thread uses these, once it runs.
  TimePoint last_time_;
  std::int64_t last_inserts_ = 0;
  Duration pause_ = Duration::zero();  // after the failures since the last checkpoint
  TimePoint paused_until_;
  std::thread thread_ REVERIE_GUARDED_BY(mutex_);
  OwnThread own_thread_;
  ForkGuard fork_guard_;
};

// Opens a store with the newest checkpoint at options.path, and a worker that writes there.
Result<std::shared_ptr<LocalService>> open_checkpointed(std::vector<TableOptions> tables,
                                                        const StoreOptions& store,
                                                        const WorkerOptions& options);

// A blocking store.checkpoint(). It calls `interrupted` about twenty times a second; true abandons
// the checkpoint.
Result<std::string> checkpoint_and_wait(LocalService& store, std::span<const std::byte> payload,
                                        const std::function<bool()>& interrupted = {});

}  // namespace reverie::checkpoint
