// A peer as Python holds it: calls, futures, and the requests that threads of Python serve.
//
//     I/O thread  --> tasks [ request ][ callback ][ request ] -->  next_task() on threads of
//     Python I/O thread  --> CallState of a call                      -->  wait() on the thread
//     that called
//
// The I/O thread never takes the interpreter's lock.
#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/rpc/peer.h"

namespace reverie::python {

namespace nb = nanobind;

// One call, from its begin to its result. Shared by the waiting and the completing thread.
struct CallState {
  Mutex mutex;
  CondVar changed;
  std::atomic<bool> is_done{false};
  CallResult result;  // once it is done
  bool has_callbacks REVERIE_GUARDED_BY(mutex) = false;
  std::atomic<CallId> id{0};
  std::weak_ptr<Peer> caller;
  // For messages.
  std::string peer;
  std::string function;
};

// What a thread of Python is to do.
struct RpcTask {
  Request request;
  std::shared_ptr<CallState> done;  // or: run this call's callbacks
  bool is_withdrawn = false;        // or: the request that was taken earlier is not wanted any more
};

// The part that the I/O thread and the threads of Python share. No Python object is in it.
class RpcTasks {
 public:
  // At most this many threads wait for a task; one more ends.
  static constexpr std::size_t kIdleMax = 4;

  void push(RpcTask task);
  // Requests that no caller waits for any more are not handed out. Of one that was handed out the
  // threads are told, once tell_withdrawn() was called.
  void withdraw(InboundId request);
  void tell_withdrawn();
  // A task that was taken, back in front of the others.
  void give_back(RpcTask task);
  // A task that is there. `needs_help`: no other thread is there, or on its way, for the next one.
  bool take(RpcTask& task, bool& needs_help);
  // Waits for one, without the interpreter's lock; one thread looks into shared memory meanwhile.
  // False: there is nothing to do, now or ever.
  bool wait(const Peer& peer, RpcTask& task, bool& needs_help);
  // A thread was started, and has come.
  void expect_thread();
  void thread_has_come();
  void close();

 private:
  struct Waiter {
    CondVar changed;
    bool is_woken = false;
  };
  Mutex mutex_;
  std::deque<RpcTask> tasks_ REVERIE_GUARDED_BY(mutex_);
  bool take_locked(RpcTask& task, bool& needs_help) REVERIE_REQUIRES(mutex_);
  void push_locked(RpcTask task) REVERIE_REQUIRES(mutex_);

  std::vector<Waiter*> idle_ REVERIE_GUARDED_BY(mutex_);  // the last to come is the first to go
  std::size_t coming_ REVERIE_GUARDED_BY(mutex_) = 0;     // threads that were started or woken
  std::atomic<std::size_t> ready_{0};                     // tasks; for those who look
  std::atomic<bool> is_looking_{false};                   // a thread sees the next task by itself
  bool tells_withdrawn_ REVERIE_GUARDED_BY(mutex_) = false;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

// The interpreter's lock guards what holds Python objects.
class RpcPeer {
 public:
  explicit RpcPeer(const Peer::Options& options);
  ~RpcPeer() { close(); }
  RpcPeer(const RpcPeer&) = delete;
  RpcPeer& operator=(const RpcPeer&) = delete;

  Peer& peer() { return *peer_; }
  const std::shared_ptr<Peer>& shared_peer() { return peer_; }
  // Requests of `function` are answered with what `handler(*args, **kwargs)` gives; without a
  // handler, None, they are tasks for the caller of next_task().
  void define(const std::string& function, nb::object handler);
  bool undefine(const std::string& function);
  void close();

  // The future of a call. With `lends`, its arrays are not copied: the caller waits.
  std::shared_ptr<CallState> begin(nb::handle peer, nb::handle function, nb::handle args,
                                   nb::handle kwargs, nb::handle timeout_s, bool is_idempotent,
                                   bool lends);
  // Waits and gives the value, or raises.
  nb::object sync(nb::handle peer, nb::handle function, nb::handle args, nb::handle kwargs,
                  nb::handle timeout_s, bool is_idempotent);
  void cancel(CallState& call);
  // Calls `callback` once the call is done, on a thread that serves tasks; false: it is done.
  bool when_done(const std::shared_ptr<CallState>& call, nb::object callback);

  // Serves requests that have a handler, and gives the next task that is Python's to do:
  // (session, call, caller, function, arguments, needs_help) for a request, where `arguments` is
  // None if they cannot be read, and was answered so; (callbacks, needs_help);
  // (session, call, error) for what a handler raised; (session, call, None, needs_help) for a
  // request that is not wanted any more, after tell_withdrawn(); () if a thread is needed beside
  // this one and `may_get_help`; None at the end.
  nb::object next_task(bool may_get_help);
  RpcTasks& tasks() { return *tasks_; }
  void answer(std::uint64_t session, std::uint64_t call, nb::handle value);
  void fail(std::uint64_t session, std::uint64_t call, int code, const std::string& type,
            const std::string& text, const std::string& traceback);

 private:
  // What a handler, if there is one, makes of the request; invalid once it is answered.
  nb::object serve(const Request& request, nb::handle handler);
  Payload encode_arguments(nb::handle args, nb::handle kwargs, bool lends);

  ForkGuard fork_guard_;
  std::shared_ptr<RpcTasks> tasks_ = std::make_shared<RpcTasks>();
  const std::shared_ptr<Peer> peer_;
  LeafReader reader_;
  std::unordered_map<const CallState*, std::vector<nb::object>> callbacks_;
  std::unordered_map<std::string, nb::object> handlers_;
};

// Waits for `call` as long as `deadline`. False when the time is up first. Raises for Ctrl-C.
bool wait_for(CallState& call, TimePoint deadline);
// The value of a call that is done, or raises what it ended with.
nb::object value_of(CallState& call);

// The exception classes of calls, from reverie/errors.py: one for what a handler raised, one for a
// peer that was started anew.
void set_rpc_error_classes(nb::object remote, nb::object restarted);

}  // namespace reverie::python
