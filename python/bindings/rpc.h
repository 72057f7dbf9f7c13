// A peer in Python: calls, futures, and the requests that Python threads serve.
//
//     ServingQueue of the requests and callbacks --> next_task() on threads of Python
//     PendingCall                                --> wait_for() on the thread that called
//
// The I/O thread never takes the interpreter's lock.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "python/bindings/rpc_batch.h"
#include "python/bindings/rpc_values.h"
#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/calls/call_gatherer.h"
#include "reverie/calls/call_gatherers.h"
#include "reverie/calls/pending_call.h"
#include "reverie/calls/serving_queue.h"
#include "reverie/rpc/peer.h"

namespace reverie::python {

namespace nb = nanobind;

// The interpreter's lock guards what holds Python objects.
class RpcPeer {
 public:
  RpcPeer(const Peer::Options& options, Pickle pickle);
  ~RpcPeer() { close(); }
  RpcPeer(const RpcPeer&) = delete;
  RpcPeer& operator=(const RpcPeer&) = delete;

  // Raise in a forked child.
  Peer& peer() { return *shared_peer(); }
  const std::shared_ptr<Peer>& shared_peer();
  Pickle pickle() const { return pickle_; }
  // Requests of `function` are answered with the result of `handler(*args, **kwargs)`; if the
  // handler is None, they become tasks for the caller of next_task().
  void define(const std::string& function, nb::object handler);
  // A function whose calls are served together, and its options.
  struct Served {
    nb::object function;
    nb::object is_ready;       // called with the number of calls that wait; or None
    bool is_deferred = false;  // is given the batch first, and answers through it
    bool has_limit = false;    // waiting calls become a batch in time, even without further calls
    std::shared_ptr<const RpcBatchOptions> options;
  };
  // If `options` say that it is not served, take() returns its calls.
  std::shared_ptr<CallGatherer> define_gathered(const std::string& function,
                                                const CallGatherer::Options& options,
                                                Served served);
  // Calls `callback` once after the next call, on a thread that serves tasks.
  void when_added(const std::shared_ptr<CallGatherer>& gatherer, nb::object callback);
  // The next batch: (batch, args, kwargs); without `options` the next call: (session, call, caller,
  // function, arguments). None if there is no batch by then. Raises CANCELLED once the peer is
  // closed.
  nb::object take(const std::shared_ptr<CallGatherer>& gatherer,
                  const std::shared_ptr<const RpcBatchOptions>& options, nb::handle is_ready,
                  TimePoint deadline);
  bool undefine(const std::string& function);
  void close();

  // Begins a call and returns its future. With `lends`, arrays are not copied: the caller waits.
  std::shared_ptr<PendingCall> begin(nb::handle peer, nb::handle function, nb::handle args,
                                     nb::handle kwargs, nb::handle timeout_s, bool is_idempotent,
                                     bool lends);
  // Waits and returns the value, or raises.
  nb::object sync(nb::handle peer, nb::handle function, nb::handle args, nb::handle kwargs,
                  nb::handle timeout_s, bool is_idempotent);
  // Calls `callback` once the call is done, on a thread that serves tasks. False: it is done, and
  // `even_if_done` is false or the peer is closed.
  bool when_done(const std::shared_ptr<PendingCall>& call, nb::object callback, bool even_if_done);

  // Serves requests that have a handler, and returns the next task for Python code:
  // (session, call, caller, function, arguments, needs_help) for a request; (callbacks,
  // needs_help); (session, call, None, needs_help) for a request that is not wanted any more, after
  // tell_withdrawn(); () if a thread is needed beside this one; None at the end.
  nb::object next_task();
  ServingQueue& tasks() { return *tasks_; }
  void answer(std::uint64_t session, std::uint64_t call, nb::handle value);
  void fail(std::uint64_t session, std::uint64_t call, int code, const std::string& type,
            const std::string& text, const std::string& traceback);

 private:
  // The callbacks that wait for the next call of a gatherer.
  struct Added {
    std::shared_ptr<CallGatherer> gatherer;
    std::vector<nb::object> callbacks;
  };

  void serve(Request request, nb::handle handler);
  // Runs batches while there are calls that can form one.
  void serve(const std::shared_ptr<CallGatherer>& gatherer, const std::shared_ptr<Served>& served);
  void run(std::vector<Request> calls, const Served& served);
  // The payload refers to large arrays: no thread may change them until it was copied or sent.
  Payload encode_arguments(nb::handle args, nb::handle kwargs);

  const Pickle pickle_;
  ForkGuard fork_guard_;
  std::shared_ptr<ServingQueue> tasks_ = std::make_shared<ServingQueue>();
  const std::shared_ptr<CallGatherers> all_gatherers_ = std::make_shared<CallGatherers>();
  const PendingCall::SharedOnDone on_done_;  // passes finished calls to the tasks
  const std::shared_ptr<Peer> peer_;
  LeafReader reader_;
  std::unordered_map<const PendingCall*, std::vector<nb::object>> callbacks_;
  std::unordered_map<std::string, nb::object> handlers_;
  std::unordered_map<std::string, std::shared_ptr<CallGatherer>> gatherers_;  // that are served
  std::unordered_map<const CallGatherer*, std::shared_ptr<Served>> served_;
  std::unordered_map<const CallGatherer*, Added> added_;
};

// Waits for `call` until `deadline`. False if the time is up first. Raises for Ctrl-C.
bool wait_for(PendingCall& call, TimePoint deadline);
// The value of a finished call, or raises its error.
nb::object value_of(const PendingCall& call, Pickle pickle);

// The exception classes of calls, from reverie/errors.py: one for exceptions of handlers, one for a
// peer that was restarted.
void set_rpc_error_classes(nb::object remote, nb::object restarted);

}  // namespace reverie::python
