#include "python/bindings/rpc.h"

#include <optional>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_values.h"

namespace reverie::python {
namespace {

// Most calls' values take less: one allocation instead of five.
constexpr std::size_t kHeadBytes = 64;

// Never destroyed: the interpreter may be gone when the library's statics are.
struct RpcErrorClasses {
  nb::object remote;
  nb::object restarted;
};

RpcErrorClasses& error_classes() {
  static auto* const instance = new RpcErrorClasses;
  return *instance;
}

// None if they cannot be read, and the caller was told so.
nb::object arguments_of(Peer& peer, const Request& request) {
  try {
    return decode_value(request.message.payload);
  } catch (nb::python_error& error) {
    const std::string text = str_of(error.value());
    peer.fail(request.id,
              {StatusCode::kInvalidArgument, "",
               format("the arguments of '{}' cannot be read: {}", request.function, text), ""});
    return nb::none();
  }
}

}  // namespace

void set_rpc_error_classes(nb::object remote, nb::object restarted) {
  error_classes() = {std::move(remote), std::move(restarted)};
}

// --- The peer.

RpcPeer::RpcPeer(const Peer::Options& options)
    : told_(std::make_shared<PendingCall::Told>(
          [tasks = std::weak_ptr(tasks_)](const std::shared_ptr<PendingCall>& call) {
            if (const auto open = tasks.lock()) open->push({.done = call});
          })),
      peer_(unwrap(Peer::make(options))) {
  peer_->set_withdrawn([tasks = tasks_](InboundId request) { tasks->withdraw(request); });
}

const std::shared_ptr<Peer>& RpcPeer::shared_peer() {
  unwrap(fork_guard_.check("peer"));
  return peer_;
}

void RpcPeer::define(const std::string& function, nb::object handler) {
  unwrap(peer_->define(function, [tasks = tasks_](Request request) {
    tasks->push({.request = std::move(request)});
  }));
  if (!handler.is_none()) handlers_[function] = std::move(handler);
}

bool RpcPeer::undefine(const std::string& function) {
  const bool was_defined = peer().undefine(function);
  nb::object gone;  // its end may run Python code
  const auto place = handlers_.find(function);
  if (place != handlers_.end()) {
    gone = std::move(place->second);
    handlers_.erase(place);
  }
  return was_defined;
}

void RpcPeer::close() {
  if (!fork_guard_.check("peer").ok()) return;  // its locks may never be released
  without_gil([this] { peer_->close(); });
  // What is left are callbacks of calls that ended so.
  tasks_->close();
  drop_lent_arrays();
  std::unordered_map<std::string, nb::object> gone;
  gone.swap(handlers_);
}

Payload RpcPeer::encode_arguments(nb::handle args, nb::handle kwargs) {
  drop_lent_arrays();
  Payload payload;
  payload.head.reserve(kHeadBytes);
  ValueEncoder encoder(payload, reader_, /*lends=*/true);
  ValueWriter(payload).begin(ValueKind::kTuple, 2);
  encoder.encode(args, "args");
  encoder.encode(kwargs, "kwargs");
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
  Payload payload = encode_arguments(args, kwargs);
  const bool is_brief = payload.bulk_bytes() + payload.head.size() <= kBriefBytes;
  const auto go = [&] {
    return PendingCall::begin(peer_, peer_name, function_name, std::move(payload), options, told_);
  };
  // A brief one keeps the interpreter's lock: nothing of the peer's waits for that.
  return unwrap(is_brief ? go() : without_gil(go));
}

nb::object RpcPeer::sync(nb::handle peer, nb::handle function, nb::handle args, nb::handle kwargs,
                         nb::handle timeout_s, bool is_idempotent) {
  const auto call = begin(peer, function, args, kwargs, timeout_s, is_idempotent, /*lends=*/true);
  try {
    // The call has a deadline of its own.
    (void)wait_for(*call, TimePoint::max());
  } catch (nb::python_error&) {  // Ctrl-C
    call->cancel();
    throw;
  }
  nb::object value = value_of(*call);
  drop_lent_arrays();
  return value;
}

bool RpcPeer::when_done(const std::shared_ptr<PendingCall>& call, nb::object callback,
                        bool is_late_too) {
  if (!call->tell_when_done()) {
    if (!is_late_too || !peer_->check_open().ok()) return false;
    tasks_->push({.done = call});  // is taken under the interpreter's lock, too
  }
  // Its callbacks run under the interpreter's lock, which this thread holds: not before this one is
  // added.
  callbacks_[call.get()].push_back(std::move(callback));
  return true;
}

nb::object RpcPeer::next_task(bool may_get_help) {
  while (true) {
    std::optional<ServingTask> next;
    {
      // One that is there is taken under the interpreter's lock: handing that over for each would
      // cost more than the task.
      const auto tasks = tasks_;
      const auto peer = peer_;
      next = tasks->take();
      if (!next) next = without_gil([&] { return tasks->wait(*peer); });
    }
    if (!next) return nb::none();
    ServingTask& task = *next;
    const bool needs_help = task.needs_help;
    if (task.done) {
      const auto place = callbacks_.find(task.done.get());
      if (place == callbacks_.end()) continue;
      nb::list callbacks;
      for (const nb::object& callback : place->second) callbacks.append(callback);
      callbacks_.erase(place);
      task.done->set_told();
      return nb::make_tuple(callbacks, needs_help);
    }
    if (task.is_withdrawn) {
      return nb::make_tuple(task.request.id.session, task.request.id.call, nb::none(), needs_help);
    }
    const auto found = handlers_.find(task.request.function);
    const nb::object handler = found != handlers_.end() ? found->second : nb::object();
    if (handler.is_valid()) {
      if (needs_help && may_get_help) {
        tasks_->give_back(std::move(task));
        return nb::tuple();
      }
      nb::object left = serve(std::move(task.request), handler);
      if (left.is_valid()) return left;
      continue;
    }
    const Request& request = task.request;
    nb::object arguments = arguments_of(*peer_, request);
    return nb::make_tuple(request.id.session, request.id.call, request.caller, request.function,
                          arguments, needs_help);
  }
}

nb::object RpcPeer::serve(Request request, nb::handle handler) {
  nb::object arguments = arguments_of(*peer_, request);
  if (arguments.is_none()) return {};
  request.message.payload = {};
  // A hostile peer may have sent anything.
  if (PyTuple_CheckExact(arguments.ptr()) && PyTuple_GET_SIZE(arguments.ptr()) == 2) {
    PyObject* const args = PyTuple_GET_ITEM(arguments.ptr(), 0);
    PyObject* const kwargs = PyTuple_GET_ITEM(arguments.ptr(), 1);
    if (PyTuple_CheckExact(args) && PyDict_CheckExact(kwargs)) {
      const bool has_names = PyDict_GET_SIZE(kwargs) > 0;
      const nb::object value =
          nb::steal(PyObject_Call(handler.ptr(), args, has_names ? kwargs : nullptr));
      if (value.is_valid()) arguments.reset();  // its arrays may go back ahead of the answer
      try {
        if (!value.is_valid()) throw nb::python_error();
        answer(request.id.session, request.id.call, value);
        return {};
      } catch (nb::python_error& error) {
        return nb::make_tuple(request.id.session, request.id.call, nb::borrow(error.value()));
      }
    }
  }
  peer_->fail(request.id,
              {StatusCode::kInvalidArgument, "",
               format("the arguments of '{}' are not a tuple and a dict", request.function), ""});
  return {};
}

void RpcPeer::answer(std::uint64_t session, std::uint64_t call, nb::handle value) {
  drop_lent_arrays();
  Payload payload;
  payload.head.reserve(kHeadBytes);
  ValueEncoder(payload, reader_, /*lends=*/true).encode(value, "the answer");
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

nb::object value_of(const PendingCall& call) {
  const CallResult& result = call.result();
  switch (result.kind) {
    case CallResult::Kind::kAnswer:
      return decode_value(result.payload);
    case CallResult::Kind::kRemoteError: {
      if (result.error_type.empty()) break;  // the library's own, of the other side
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
