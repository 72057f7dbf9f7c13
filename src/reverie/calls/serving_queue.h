// ServingQueue: requests, and calls that are done, for the threads that serve a peer.
//
//     I/O thread --push()--> [ request ][ done call ][ request ] --wait()--> serving threads
//
//     peer->define("policy", [queue](Request request) { queue->push({.request = request}); });
//     peer->set_withdrawn([queue](InboundId request) { queue->withdraw(request); });
//     while (std::optional<ServingTask> task = queue->wait(*peer)) serve(*task);
//
// Threads come as they are needed: a task says whether another thread is wanted beside the one that
// has it, and a thread that finds enough others waiting ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/calls/call_gatherer.h"
#include "reverie/calls/pending_call.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// What a serving thread is to do.
struct ServingTask {
  Request request = {};
  std::shared_ptr<CallGatherer> gatherer = nullptr;  // or: its calls may make a batch
  std::shared_ptr<PendingCall> done = nullptr;  // or: this call is done, and its caller to be told
  bool is_withdrawn = false;  // or: the request that was taken earlier is not wanted any more
  // No other thread waits for the next task, or is on its way. Set where a task is taken.
  bool needs_help = false;
};

// Thread-safe.
class ServingQueue {
 public:
  // At most this many threads wait for a task; one more ends.
  static constexpr std::size_t kIdleMax = 4;

  ServingQueue() = default;
  ServingQueue(const ServingQueue&) = delete;
  ServingQueue& operator=(const ServingQueue&) = delete;

  void push(ServingTask task);
  // The caller of the request waits no more: it is not handed out. If it was handed out already,
  // the threads are told, once tell_withdrawn() was called.
  void withdraw(InboundId request);
  void tell_withdrawn();
  // A task that was taken, back in front of the others.
  void give_back(ServingTask task);

  // The next task if there is one.
  std::optional<ServingTask> take();
  // The next task; one thread looks into shared memory meanwhile (Peer::look). None: there is
  // nothing to do, now or ever, and the thread may end.
  std::optional<ServingTask> wait(const Peer& peer);

  // A thread was started, and has come.
  void expect_thread();
  void thread_has_come();
  // Ends the waits, once no task is left.
  void close();

 private:
  struct Waiter {
    CondVar changed;
    bool is_woken = false;
  };
  void push_locked(ServingTask task) REVERIE_REQUIRES(mutex_);
  std::optional<ServingTask> take_locked() REVERIE_REQUIRES(mutex_);
  void wake_locked(Waiter& waiter) REVERIE_REQUIRES(mutex_);

  Mutex mutex_;
  std::deque<ServingTask> tasks_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Waiter*> idle_ REVERIE_GUARDED_BY(mutex_);  // the last to come is the first to go
  std::size_t coming_ REVERIE_GUARDED_BY(mutex_) = 0;     // threads that were started or woken
  std::atomic<std::size_t> ready_{0};                     // tasks; for those who look
  std::atomic<bool> is_looking_{false};                   // a thread sees the next task by itself
  bool tells_withdrawn_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
