// ServingQueue: requests and finished calls, for the threads that serve a peer.
//
//     I/O thread --push()--> [ request ][ done call ][ request ] --wait()--> serving threads
//
//     peer->define("policy", [queue](Request request) { queue->push({.request = request}); });
//     peer->set_withdrawn([queue](std::span<const InboundId> requests) {
//       queue->withdraw({requests.begin(), requests.end()});
//     });
//     while (std::optional<ServingTask> task = queue->wait(*peer)) serve(*task);
// Threads are started as they are needed: a task says whether another thread should be started, and
// a thread that finds enough other threads waiting, or more threads than are allowed, ends.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/calls/call_gatherer.h"
#include "reverie/calls/pending_call.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// A task of a serving thread.
struct ServingTask {
  Request request = {};
  std::shared_ptr<CallGatherer> gatherer = nullptr;  // or: its calls may make a batch
  std::shared_ptr<PendingCall> done = nullptr;       // or: this call is done: notify its caller
  bool is_withdrawn = false;  // or: the caller no longer wants the request, which was taken earlier
  // No other thread waits for the next task, or will soon, and one more is allowed. Set when a task
  // is taken.
  bool needs_help = false;
};

// Thread-safe.
class ServingQueue {
 public:
  // At most this many threads wait for a task; further ones end.
  static constexpr std::size_t kIdleMax = 4;

  ServingQueue() = default;
  ServingQueue(const ServingQueue&) = delete;
  ServingQueue& operator=(const ServingQueue&) = delete;

  void push(ServingTask task);
  // The callers of these requests no longer wait, so the requests are dropped, in one pass. The
  // threads are notified of those that one of them has taken already, once tell_withdrawn() was
  // called.
  void withdraw(std::set<InboundId> requests);
  void tell_withdrawn();
  // Puts a task that was taken back at the front.
  void give_back(ServingTask task);

  // The next task if there is one.
  std::optional<ServingTask> take();
  // Waits for the next task; one thread reads the peer's messages meanwhile (Peer::wait). Empty:
  // the thread should end, since it is not needed or the queue is closed.
  std::optional<ServingTask> wait(const Peer& peer);

  // Threads above this count end when they ask for their next task. REQUIRES: count >= 1.
  void set_threads_max(std::size_t count);

  // No thread waits for the next task, or will soon, and one more is allowed. False once closed.
  bool needs_thread();

  // A thread was started, and will call wait().
  void expect_thread();
  void note_thread_started();
  // The expected thread could not be started.
  void note_thread_failed();
  // Ends all waits, once no task is left.
  void close();

 private:
  struct Waiter {
    CondVar changed;
    bool is_woken = false;
  };
  void push_locked(ServingTask task) REVERIE_REQUIRES(mutex_);
  std::optional<ServingTask> take_locked() REVERIE_REQUIRES(mutex_);
  bool is_short_locked() const REVERIE_REQUIRES(mutex_);
  void look(const Peer& peer);
  void ask_looker_locked() REVERIE_REQUIRES(mutex_);
  void wake_one_locked() REVERIE_REQUIRES(mutex_);
  void wake_locked(Waiter& waiter) REVERIE_REQUIRES(mutex_);

  Mutex mutex_;
  std::deque<ServingTask> tasks_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Waiter*> idle_ REVERIE_GUARDED_BY(mutex_);  // the last one to wait is woken first
  std::size_t threads_ REVERIE_GUARDED_BY(mutex_) = 0;    // that have come, and have not ended
  std::size_t threads_max_ REVERIE_GUARDED_BY(mutex_) = std::numeric_limits<std::size_t>::max();
  std::size_t starting_threads_ REVERIE_GUARDED_BY(mutex_) = 0;  // started or woken
  std::atomic<std::size_t> ready_{0};                            // tasks; for the looking thread
  std::atomic<bool> is_asked_{false};                            // some thread should end
  // A thread waits in it, and sees the next task by itself.
  const Peer* looker_ REVERIE_GUARDED_BY(mutex_) = nullptr;
  bool tells_withdrawn_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
