#include "python/bindings/rpc.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "python/bindings/convert.h"
#include "python/bindings/log_lines.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_values.h"
#include "reverie/os/cuda_driver.h"

namespace reverie::python {
namespace {

// Most calls' values take less: one allocation instead of five.
constexpr std::size_t kHeadBytes = 64;

// Never destroyed: the interpreter may be gone when the library's statics are.
struct RpcErrorClasses {
  nb::object remote;
  nb::object restarted;
};

// After how many of the `count` waiting calls the program's predicate closes a batch; 0 if after
// none. It is called for each number of calls in turn, and was called for the first `asked` before.
std::size_t closes_at(nb::handle is_ready, std::size_t& asked, std::size_t count) {
  if (is_ready.is_none()) return 0;
  for (std::size_t n = std::min(asked + 1, count); n >= 1 && n <= count; ++n) {
    asked = n;
    const int is_true = PyObject_IsTrue(is_ready(n).ptr());
    if (is_true < 0) raise_pending();
    if (is_true != 0) return n;
  }
  return 0;
}

RpcErrorClasses& error_classes() {
  static auto* const instance = new RpcErrorClasses;
  return *instance;
}

nb::object callbacks_task(const std::vector<nb::object>& callbacks, bool needs_help) {
  nb::list found;
  for (const nb::object& callback : callbacks) found.append(callback);
  return nb::make_tuple(found, needs_help);
}

}  // namespace

void set_rpc_error_classes(nb::object remote, nb::object restarted) {
  error_classes() = {std::move(remote), std::move(restarted)};
}

// --- The functions.

int RpcFunctions::visit_references(visitproc visit, void* arg) const {
  for (const auto& [name, handler] : handlers) Py_VISIT(handler.function.ptr());
  for (const auto& [gatherer, one] : served) {
    Py_VISIT(one.function.ptr());
    Py_VISIT(one.is_ready.ptr());
  }
  for (const auto& [gatherer, one] : added) {
    for (const nb::object& callback : one.callbacks) Py_VISIT(callback.ptr());
  }
  return 0;
}

void RpcFunctions::drop_references() {
  // The end of a function may run Python code, which comes back here.
  const RpcFunctions gone = std::exchange(*this, {});
}

// --- The peer.

RpcPeer::RpcPeer(const Peer::Options& options, Pickle pickle)
    : pickle_(pickle),
      on_done_(std::make_shared<PendingCall::OnDone>(
          [tasks = std::weak_ptr(tasks_)](const std::shared_ptr<PendingCall>& call) {
            if (const auto open = tasks.lock()) open->push({.done = call});
          })),
      peer_(unwrap(Peer::make(options))),
      devices_(DeviceTensors::make(peer_, {.driver = &cuda_driver()})) {
  peer_->set_withdrawn([tasks = tasks_, gatherers = all_gatherers_](const auto requests) {
    std::set<InboundId> left(requests.begin(), requests.end());
    gatherers->withdraw(left);
    tasks->withdraw(std::move(left));
  });
  peer_->set_on_event([](Peer::EventKind kind, const std::string& text) {
    // It repeats while a peer does not exist.
    const bool is_common = kind == Peer::EventKind::kNotReached;
    const LogQueue::Level level = is_common ? LogQueue::kDebug : LogQueue::kInfo;
    if (LogQueue::wants(level)) add_log_line(level, text);
  });
}

RpcPeer::~RpcPeer() {
  // An Rpc may be dropped while an exception is raised, which goes on afterwards.
  const nb::error_scope pending;
  try {
    close();
  } catch (nb::python_error& error) {
    error.discard_as_unraisable("the end of an Rpc");
  }
}

const std::shared_ptr<Peer>& RpcPeer::shared_peer() {
  unwrap(fork_guard_.check("peer"));
  return peer_;
}

std::shared_ptr<RpcFunctions> RpcPeer::make_functions() {
  auto made = std::make_shared<RpcFunctions>();
  functions_ = made;
  return made;
}

std::shared_ptr<RpcFunctions> RpcPeer::functions() const {
  auto found = functions_.lock();
  if (!found) raise(cancelled("this Rpc was dropped"));
  return found;
}

void RpcPeer::define(const std::string& function, nb::object handler, bool is_deferred) {
  const auto kept = functions();
  unwrap(peer_->define(function, [tasks = tasks_](Request request) {
    tasks->push({.request = std::move(request)});
  }));
  kept->handlers[function] = {std::move(handler), is_deferred};
}

std::shared_ptr<CallGatherer> RpcPeer::define_gathered(const std::string& function,
                                                       const CallGatherer::Options& options,
                                                       RpcServed served) {
  const auto kept = functions();
  auto gatherer = std::make_shared<CallGatherer>(options);
  unwrap(peer_->define(function, [tasks = tasks_, gatherer](Request request) {
    if (gatherer->add(request)) {
      tasks->push({.gatherer = gatherer});
    } else if (gatherer->is_closed()) {
      tasks->push({.request = std::move(request)});  // whose caller gets NOT_FOUND
    }
  }));
  all_gatherers_->add(gatherer);
  kept->gatherers[function] = gatherer;
  if (options.is_served) kept->served[gatherer.get()] = std::move(served);
  return gatherer;
}

void RpcPeer::when_added(const std::shared_ptr<CallGatherer>& gatherer, nb::object callback) {
  RpcFunctions::Added& added = functions()->added[gatherer.get()];
  added.gatherer = gatherer;
  added.callbacks.push_back(std::move(callback));
  gatherer->notify_on_next();
}

bool RpcPeer::undefine(const std::string& function) {
  const bool was_defined = peer().undefine(function);
  const auto kept = functions_.lock();
  if (!kept) return was_defined;
  // What goes may run Python code at its end: once all is done here.
  const auto handler = kept->handlers.extract(function);
  const auto gathered = kept->gatherers.extract(function);
  if (gathered.empty()) return was_defined;
  const std::shared_ptr<CallGatherer>& gatherer = gathered.mapped();
  const auto served = kept->served.extract(gatherer.get());
  const auto added = kept->added.extract(gatherer.get());
  for (const Request& request : gatherer->close()) {
    peer_->fail(request.id,
                {StatusCode::kNotFound, "",
                 format("'{}' was undefined before this call was served", function), ""});
  }
  return was_defined;
}

void RpcPeer::close() {
  if (!fork_guard_.check("peer").ok()) return;  // its locks may never be released
  without_gil([this] {
    peer_->close();
    devices_->close();
  });
  // Only callbacks of calls that ended with the close are left.
  tasks_->close();
  all_gatherers_->close();
  drop_lent_arrays();
  if (const auto kept = functions_.lock()) kept->drop_references();
}

Payload RpcPeer::encode_arguments(nb::handle args, nb::handle kwargs, DeviceSender& devices) {
  drop_lent_arrays();
  Payload payload;
  payload.head.reserve(kHeadBytes);
  ValueEncoder encoder(payload, reader_, /*lends=*/true, pickle_, &devices);
  ValueWriter(payload).begin(ValueKind::kTuple, 2);
  encoder.encode(args, "args");
  encoder.encode(kwargs, "kwargs");
  devices.finish(payload);
  return payload;
}

std::shared_ptr<PendingCall> RpcPeer::begin(nb::handle peer, nb::handle function, nb::handle args,
                                            nb::handle kwargs, nb::handle timeout_s,
                                            bool is_idempotent, bool lends) {
  const std::string peer_name(text_argument("peer", peer));
  const std::string function_name(text_argument("function", function));
  CallOptions options;
  options.deadline = deadline(timeout_s);
  options.is_idempotent = is_idempotent;
  options.copies_bulk = !lends;
  DeviceSender devices(
      peer_, devices_, peer_name,
      {.is_unchanged = lends, .is_for_one_run = !is_idempotent, .deadline = options.deadline});
  Payload payload = encode_arguments(args, kwargs, devices);
  const bool is_brief = payload.bulk_bytes() + payload.head.size() <= kBriefBytes;
  const auto go = [&] {
    return PendingCall::begin(peer_, peer_name, function_name, std::move(payload), options,
                              on_done_);
  };
  // A brief call keeps the interpreter's lock, for which no thread of the peer waits.
  return unwrap(is_brief ? go() : without_gil(go));
}

nb::object RpcPeer::sync(nb::handle peer, nb::handle function, nb::handle args, nb::handle kwargs,
                         nb::handle timeout_s, bool is_idempotent) {
  const auto call = begin(peer, function, args, kwargs, timeout_s, is_idempotent, /*lends=*/true);
  try {
    // The call has its own deadline.
    (void)wait_for(*call, TimePoint::max());
  } catch (nb::python_error&) {  // Ctrl-C
    call->cancel();
    throw;
  }
  nb::object value = value_of(*call, pickle_, devices_.get());
  drop_lent_arrays();
  return value;
}

bool RpcPeer::when_done(const std::shared_ptr<PendingCall>& call, nb::object callback,
                        bool even_if_done) {
  if (!call->notify_when_done()) {
    if (!even_if_done || !peer_->check_open().ok()) return false;
    tasks_->push({.done = call});  // tasks are also taken under the interpreter's lock
  }
  // Callbacks run under the interpreter's lock, which this thread holds, so they do not run before
  // this one is added.
  callbacks_[call.get()].push_back(std::move(callback));
  return true;
}

nb::object RpcPeer::next_task() {
  while (true) {
    std::optional<ServingTask> next;
    {
      // A task that is ready is taken under the interpreter's lock: releasing it for each would
      // cost more than the task.
      const auto tasks = tasks_;
      const auto peer = peer_;
      next = tasks->take();
      if (!next) next = without_gil([&] { return tasks->wait(*peer); });
    }
    if (!next) return nb::none();
    ServingTask& task = *next;
    if (task.done) {
      const auto callbacks = callbacks_.extract(task.done.get());
      if (callbacks.empty()) continue;
      task.done->set_notified();
      return callbacks_task(callbacks.mapped(), task.needs_help);
    }
    if (task.is_withdrawn) {
      return nb::make_tuple(task.request.id.session, task.request.id.call, nb::none(),
                            task.needs_help);
    }
    // Empty ones where the Rpc is gone: its requests are told that nothing is defined.
    auto functions = functions_.lock();
    if (!functions) functions = std::make_shared<RpcFunctions>();
    nb::object found =
        task.gatherer ? serve_gathered(task, *functions) : serve_request(task, *functions);
    if (found.is_valid()) return found;
  }
}

nb::object RpcPeer::serve_gathered(ServingTask& task, RpcFunctions& functions) {
  const auto place = functions.served.find(task.gatherer.get());
  if (place == functions.served.end()) {
    const auto added = functions.added.extract(task.gatherer.get());
    if (added.empty()) return {};
    return callbacks_task(added.mapped().callbacks, task.needs_help);
  }
  if (task.needs_help) {
    tasks_->give_back(std::move(task));
    return nb::tuple();
  }
  serve(task.gatherer, RpcServed(place->second));  // a copy, so that it lives while it runs
  return {};
}

nb::object RpcPeer::serve_request(ServingTask& task, RpcFunctions& functions) {
  const Request& request = task.request;
  const auto place = functions.handlers.find(request.function);
  if (place == functions.handlers.end()) {
    peer_->fail(request.id,
                {StatusCode::kNotFound, "", format("'{}' is not defined", request.function), ""});
    return {};
  }
  const RpcFunctions::Handler handler = place->second;
  if (!handler.is_deferred) {
    if (task.needs_help) {
      tasks_->give_back(std::move(task));
      return nb::tuple();
    }
    serve(std::move(task.request), handler.function);
    return {};
  }
  const nb::object arguments = arguments_to_serve(request);
  if (!arguments.is_valid()) return {};
  return nb::make_tuple(request.id.session, request.id.call, request.caller, request.function,
                        arguments, handler.function, task.needs_help);
}

nb::object RpcPeer::arguments_to_serve(const Request& request) {
  try {
    return arguments_of(*peer_, request, pickle_, devices_.get());
  } catch (const std::exception& error) {
    peer_->fail(request.id, remote_error_of(error));
    return {};
  }
}

void RpcPeer::serve(Request request, nb::handle handler) {
  nb::object arguments = arguments_to_serve(request);
  if (!arguments.is_valid()) return;
  request.message.payload = {};
  PyObject* const args = PyTuple_GET_ITEM(arguments.ptr(), 0);
  PyObject* const kwargs = PyTuple_GET_ITEM(arguments.ptr(), 1);
  const bool has_names = PyDict_GET_SIZE(kwargs) > 0;
  try {
    const nb::object value =
        owned(PyObject_Call(handler.ptr(), args, has_names ? kwargs : nullptr));
    arguments.reset();  // its arrays may be released before the answer
    answer(request.id.session, request.id.call, value);
  } catch (const std::exception& error) {
    peer_->fail(request.id, remote_error_of(error));
  }
}

void RpcPeer::serve(const std::shared_ptr<CallGatherer>& gatherer, const RpcServed& served) {
  std::size_t asked = 0;
  while (!gatherer->is_closed()) {
    const std::size_t seen = gatherer->count();
    std::vector<Request> calls;
    try {
      calls = gatherer->take(closes_at(served.is_ready, asked, seen));
    } catch (const std::exception& error) {  // it cannot be decided for these calls
      const RemoteError told = remote_error_of(error);
      for (const Request& call : gatherer->take(seen)) peer_->fail(call.id, told);
      asked = 0;
      continue;
    }
    if (!calls.empty()) {
      asked = 0;
      run(std::move(calls), served);
      continue;
    }
    if (seen == 0 || !served.has_limit) {
      if (gatherer->leave(seen)) return;
      continue;
    }
    const auto kept = gatherer;
    without_gil([&] { kept->wait(seen, Clock::system().now() + kInterruptInterval); });
  }
}

void RpcPeer::run(std::vector<Request> calls, const RpcServed& served) {
  std::shared_ptr<RpcBatch> batch;
  try {
    batch = std::make_shared<RpcBatch>(peer_, devices_, pickle_, served.options, std::move(calls));
    const nb::object joined = batch->join();
    if (!joined.is_valid()) return;
    const nb::object function = served.function;
    const auto args = nb::borrow<nb::tuple>(PyTuple_GET_ITEM(joined.ptr(), 0));
    const auto kwargs = nb::borrow<nb::dict>(PyTuple_GET_ITEM(joined.ptr(), 1));
    if (served.is_deferred) {
      (void)function(nb::cast(batch), *args, **kwargs);
    } else {
      batch->answer(function(*args, **kwargs));
    }
  } catch (const std::exception& error) {  // this thread serves on
    if (batch) batch->fail(error);
  }
}

nb::object RpcPeer::take(const std::shared_ptr<CallGatherer>& gatherer,
                         const std::shared_ptr<const RpcBatchOptions>& options, nb::handle is_ready,
                         TimePoint deadline) {
  std::size_t asked = 0;
  while (true) {
    const std::size_t seen = gatherer->count();
    std::vector<Request> calls = gatherer->take(closes_at(is_ready, asked, seen));
    if (calls.empty()) {
      if (!peer_->check_open().ok()) raise(cancelled("the Rpc of this queue is closed"));
      if (gatherer->is_closed()) raise(cancelled("the function of this queue was undefined"));
      if (Clock::system().now() >= deadline) return nb::none();
      const TimePoint until = std::min(deadline, Clock::system().now() + kInterruptInterval);
      const auto kept = gatherer;
      without_gil([&] { kept->wait(seen, until); });
      if (PyErr_CheckSignals() != 0) raise_pending();
      continue;
    }
    if (!options) {
      const Request& request = calls.front();
      const nb::object arguments = arguments_of(*peer_, request, pickle_, devices_.get());
      asked = 0;
      if (!arguments.is_valid()) continue;
      return nb::make_tuple(request.id.session, request.id.call, request.caller, request.function,
                            arguments);
    }
    auto batch = std::make_shared<RpcBatch>(peer_, devices_, pickle_, options, std::move(calls));
    const nb::object joined = batch->join();
    asked = 0;
    if (!joined.is_valid()) continue;
    return nb::make_tuple(batch, nb::handle(PyTuple_GET_ITEM(joined.ptr(), 0)),
                          nb::handle(PyTuple_GET_ITEM(joined.ptr(), 1)));
  }
}

void RpcPeer::answer(std::uint64_t session, std::uint64_t call, nb::handle value) {
  drop_lent_arrays();
  Payload payload;
  payload.head.reserve(kHeadBytes);
  DeviceSender devices(peer_, devices_, InboundId{session, call}, {});
  ValueEncoder(payload, reader_, /*lends=*/true, pickle_, &devices).encode(value, "the answer");
  devices.finish(payload);
  const auto go = [&] { peer_->answer({session, call}, std::move(payload), /*copies_bulk=*/true); };
  payload.bulk_bytes() + payload.head.size() <= kBriefBytes ? go() : without_gil(go);
}

void RpcPeer::fail(std::uint64_t session, std::uint64_t call, int code, const std::string& type,
                   const std::string& text, const std::string& traceback) {
  peer_->fail({session, call}, {static_cast<StatusCode>(code), type, text, traceback});
}

// --- Waiting.

bool wait_for(PendingCall& call, TimePoint deadline) {
  return call.is_done() ||
         wait_in_slices(deadline, [&call](TimePoint until) { return call.wait_until(until); });
}

nb::object value_of(const PendingCall& call, Pickle pickle, DeviceTensors* devices) {
  const CallResult& result = call.result();
  switch (result.kind) {
    case CallResult::Kind::kAnswer:
      return decode_value(result.payload, pickle, devices);
    case CallResult::Kind::kRemoteError: {
      if (result.error_type.empty()) break;  // an error of the library at the other peer
      nb::object error =
          error_classes().remote(format("'{}' on '{}' raised {}: {}", call.function(), call.peer(),
                                        result.error_type, result.status.message()));
      error.attr("error_type") = result.error_type;
      error.attr("error_text") = result.status.message();
      error.attr("traceback_text") = result.traceback;
      raise_object(error);
    }
    case CallResult::Kind::kRestarted:
      raise_object(error_classes().restarted(result.status.message()));
    case CallResult::Kind::kFailed:
      break;
  }
  raise(result.status);
}

}  // namespace reverie::python
