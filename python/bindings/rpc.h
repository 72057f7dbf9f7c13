// A peer in Python: calls, futures, and the requests that Python threads serve.
//
//     ServingQueue of the requests and callbacks --> next_task() on threads of Python
//     PendingCall                                --> wait_for() on the thread that called
//
// The I/O thread never takes the interpreter's lock.
//
// RpcFunctions has what the program gave, which may lead back to the peer (`rpc.define("act",
// self.act)`). The Rpc owns it, in sight of Python's collector of cycles; the peer, which serving
// threads hold, only looks it up. So an Rpc that nothing but its own functions refers to is
// dropped.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/device_arrays.h"
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

// A function whose calls are served together, and its options.
struct RpcServed {
  nb::object function;
  nb::object is_ready;       // called with the number of calls that wait; or None
  bool is_deferred = false;  // is given the batch first, and answers through it
  bool has_limit = false;    // waiting calls become a batch in time, even without further calls
  std::shared_ptr<const RpcBatchOptions> options;
};

// What a peer calls. The interpreter's lock guards it.
struct RpcFunctions {
  struct Handler {
    nb::object function;
    bool is_deferred = false;  // is given an answer first, by Python code
  };
  // The callbacks that wait for the next call of a gatherer.
  struct Added {
    std::shared_ptr<CallGatherer> gatherer;
    std::vector<nb::object> callbacks;
  };

  int visit_references(visitproc visit, void* arg) const;  // see collected.h
  void drop_references();

  std::unordered_map<std::string, Handler> handlers;
  std::unordered_map<std::string, std::shared_ptr<CallGatherer>> gatherers;
  std::unordered_map<const CallGatherer*, RpcServed> served;
  std::unordered_map<const CallGatherer*, Added> added;
};

// The interpreter's lock guards what holds Python objects.
class RpcPeer {
 public:
  RpcPeer(const Peer::Options& options, Pickle pickle);
  ~RpcPeer();
  RpcPeer(const RpcPeer&) = delete;
  RpcPeer& operator=(const RpcPeer&) = delete;

  // Raise in a forked child.
  Peer& peer() { return *shared_peer(); }
  const std::shared_ptr<Peer>& shared_peer();
  Pickle pickle() const { return pickle_; }
  const std::shared_ptr<DeviceTensors>& devices() const { return devices_; }
  // Where functions are kept from now on; the caller owns them. Call it first, and once.
  std::shared_ptr<RpcFunctions> make_functions();
  // Requests of `function` are answered with the result of `handler(*args, **kwargs)`; with
  // `is_deferred` they become tasks for the caller of next_task().
  void define(const std::string& function, nb::object handler, bool is_deferred);
  // If `options` say that it is not served, take() returns its calls.
  std::shared_ptr<CallGatherer> define_gathered(const std::string& function,
                                                const CallGatherer::Options& options,
                                                RpcServed served);
  // Calls `callback` once after the next call, on a thread that serves tasks.
  void when_added(const std::shared_ptr<CallGatherer>& gatherer, nb::object callback);
  // The next batch: (batch, args, kwargs); without `options` the next call: (session, call, caller,
  // function, arguments). None if there is no batch by then. Raises CANCELLED once the peer is
  // closed, or the function is undefined.
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
  // (session, call, caller, function, arguments, handler, needs_help) for a request; (callbacks,
  // needs_help); (session, call, None, needs_help) for a request that is not wanted any more, after
  // tell_withdrawn(); () if a thread is needed beside this one; None at the end.
  nb::object next_task();
  ServingQueue& tasks() { return *tasks_; }
  void answer(std::uint64_t session, std::uint64_t call, nb::handle value);
  void fail(std::uint64_t session, std::uint64_t call, int code, const std::string& type,
            const std::string& text, const std::string& traceback);

 private:
  // Raises if nothing keeps them any more.
  std::shared_ptr<RpcFunctions> functions() const;
  // Returns a task for Python code, or serves it and returns null.
  nb::object serve_request(ServingTask& task, RpcFunctions& functions);
  nb::object serve_gathered(ServingTask& task, RpcFunctions& functions);
  void serve(Request request, nb::handle handler);
  // On a thread that serves, which goes on after any exception. Invalid if the arguments cannot be
  // read, which the caller is told.
  nb::object arguments_to_serve(const Request& request);
  // Runs batches while there are calls that can form one.
  void serve(const std::shared_ptr<CallGatherer>& gatherer, const RpcServed& served);
  void run(std::vector<Request> calls, const RpcServed& served);
  // The payload refers to large arrays: no thread may change them until it was copied or sent.
  Payload encode_arguments(nb::handle args, nb::handle kwargs, DeviceSender& devices);

  const Pickle pickle_;
  ForkGuard fork_guard_;
  std::shared_ptr<ServingQueue> tasks_ = std::make_shared<ServingQueue>();
  const std::shared_ptr<CallGatherers> all_gatherers_ = std::make_shared<CallGatherers>();
  const PendingCall::SharedOnDone on_done_;  // passes finished calls to the tasks
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<DeviceTensors> devices_;
  LeafReader reader_;
  // The callbacks of calls in progress, which the end of the peer ends.
  std::unordered_map<const PendingCall*, std::vector<nb::object>> callbacks_;
  std::weak_ptr<RpcFunctions> functions_;
};

// Waits for `call` until `deadline`. False if the time is up first. Raises for Ctrl-C.
bool wait_for(PendingCall& call, TimePoint deadline);
// The value of a finished call, or raises its error.
nb::object value_of(const PendingCall& call, Pickle pickle, DeviceTensors* devices);

// The exception classes of calls, from reverie/errors.py: one for exceptions of handlers, one for a
// peer that was restarted.
void set_rpc_error_classes(nb::object remote, nb::object restarted);

}  // namespace reverie::python
