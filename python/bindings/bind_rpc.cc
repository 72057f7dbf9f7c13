// Binds peers, for reverie/rpc.py.
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/bind.h"
#include "python/bindings/collected.h"
#include "python/bindings/convert.h"
#include "python/bindings/process_bound.h"
#include "python/bindings/rpc.h"
#include "python/bindings/rpc_batch.h"
#include "python/bindings/rpc_records.h"
#include "reverie/base/clock.h"
#include "reverie/base/random.h"
#include "reverie/base/waiting.h"

namespace reverie::python {
namespace {

// The native part of reverie.Future.
struct RpcCall {
  ProcessBound<std::shared_ptr<PendingCall>> state;
  Pickle pickle;  // of its peer
  std::shared_ptr<DeviceTensors> devices;
  nb::object pool;   // of the threads that run its callbacks
  nb::object value;  // once it was requested
  bool is_being_read = false;
};

constexpr Duration kReadPause = std::chrono::microseconds(200);

// Reading releases the interpreter's lock. Others wait, since there is no second reading: what a
// tensor of a device is copied from is its sender's again after the first one.
nb::object value_once(RpcCall& call) {
  while (call.is_being_read) {
    without_gil([] { pause_until(Clock::system(), Clock::system().now() + kReadPause); });
    if (PyErr_CheckSignals() != 0) raise_pending();
  }
  if (call.value.is_valid()) return call.value;
  call.is_being_read = true;
  struct End {
    bool& is_being_read;
    ~End() { is_being_read = false; }
  } const end{call.is_being_read};
  call.value = value_of(*call.state, call.pickle, call.devices.get());
  return call.value;
}

// Calls of a function that wait, and how they make a batch; what Rpc.define_queue is made of.
struct RpcGatherer {
  nb::object peer;  // keeps `native`
  RpcPeer* native;
  std::shared_ptr<CallGatherer> gatherer;
  std::shared_ptr<const RpcBatchOptions> options;  // null: single calls
  nb::object is_ready;

  int visit_references(visitproc visit, void* arg) const {
    Py_VISIT(is_ready.ptr());
    return 0;  // the peer has no way back here
  }
  void drop_references() {
    const nb::object gone = std::exchange(is_ready, nb::object(nb::none()));
  }
};

std::optional<Duration> optional_seconds(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  return seconds(nb::cast<double>(value));
}

// The arguments were checked in Python.
nb::object define_gathered(nb::object peer, const std::string& name, nb::object function,
                           std::size_t size, nb::handle max_wait_s, bool is_dynamic, bool is_cat,
                           bool pads, nb::object device, nb::object is_ready,
                           const std::string& leaves, bool is_batched, bool is_deferred) {
  RpcPeer& native = nb::cast<RpcPeer&>(peer);
  CallGatherer::Options gathers;
  gathers.size = size;
  gathers.max_wait = optional_seconds(max_wait_s);
  gathers.is_dynamic = is_dynamic;
  gathers.may_close_early = !is_ready.is_none();
  gathers.is_served = !function.is_none();
  std::shared_ptr<RpcBatchOptions> options;
  if (is_batched) {
    const BatchLeaves kind = leaves == "first"  ? BatchLeaves::kFirst
                             : leaves == "each" ? BatchLeaves::kEach
                                                : BatchLeaves::kStack;
    options = std::make_shared<RpcBatchOptions>(RpcBatchOptions{size, is_cat, pads, device, kind});
  }
  RpcServed served{std::move(function), is_ready, is_deferred, gathers.max_wait.has_value(),
                   options};
  auto gatherer = native.define_gathered(name, gathers, std::move(served));
  if (gathers.is_served) return nb::none();
  return nb::cast(std::make_unique<RpcGatherer>(RpcGatherer{
      std::move(peer), &native, std::move(gatherer), std::move(options), std::move(is_ready)}));
}

// Never destroyed: the interpreter may be gone when statics are destroyed.
nb::object& future_class() {
  static auto* const instance = new nb::object;
  return *instance;
}

nb::list peer_list(Peer& peer) {
  nb::list found;
  for (const PeerInfo& info : peer.peers()) {
    nb::dict entry;
    entry["name"] = info.name;
    entry["is_connected"] = info.is_connected;
    entry["link"] = info.link_address;
    entry["transport"] = info.transport;
    entry["transport_reason"] = info.transport_reason;
    entry["calls"] = info.calls;
    entry["requests"] = info.requests;
    found.append(entry);
  }
  return found;
}

nb::dict device_counts(const RpcPeer& peer) {
  const DeviceTensors::Counts counts = peer.devices()->counts();
  nb::dict found;
  found["lent"] = counts.lent;
  found["lent_bytes"] = counts.lent_bytes;
  found["received"] = counts.found;
  found["open"] = counts.open_count;
  found["refusal"] = counts.refusal;
  return found;
}

}  // namespace

void bind_rpc(nb::module_& m) {
  using namespace nb::literals;
  m.def("set_rpc_error_classes", &set_rpc_error_classes, "remote"_a, "restarted"_a);
  m.def("random_seed", &random_seed, "64 bits of the system's random device.");
  m.def(
      "set_rpc_future_class", [](nb::object type) { future_class() = std::move(type); }, "type"_a);
  nb::class_<RpcCall>(m, "RpcCall", nb::is_weak_referenceable(), "See ``reverie.rpc.Future``.")
      .def_prop_ro(
          "_pool", [](const RpcCall& self) { return self.pool; },
          nb::sig("def _pool(self) -> typing.Any"))
      .def("done", [](const RpcCall& self) { return self.state->is_done(); })
      .def(
          "wait",
          [](RpcCall& self, nb::handle timeout_s) {
            return wait_for(*self.state, deadline(timeout_s));
          },
          "timeout_s"_a.none(), nb::sig("def wait(self, timeout_s: float | None) -> bool"))
      .def(
          "_value", [](RpcCall& self) { return value_once(self); },
          nb::sig("def _value(self) -> typing.Any"))
      .def(
          "_value_within",
          [](RpcCall& self, nb::handle timeout_s) {
            if (!wait_for(*self.state, deadline(timeout_s))) {
              raise(deadline_exceeded(
                  "no answer within {} s; the call continues, ask again or cancel()",
                  str_of(timeout_s)));
            }
            return value_once(self);
          },
          "timeout_s"_a.none(),
          nb::sig("def _value_within(self, timeout_s: float | None) -> typing.Any"));
  m.def("register_record", &register_record, "type"_a, "name"_a, "fields"_a, "are_arguments"_a);
  m.def("set_rpc_batch_helpers", &set_rpc_batch_helpers, "join_leaves"_a, "error_parts"_a);
  nb::class_<RpcBatch>(
      m, "RpcBatch",
      "Calls that were taken together.\n\n``batch(value)`` deals ``value`` out: each "
      "caller gets its rows, or its entry. What is wrong with it the callers are "
      "told.")
      .def("__call__", &RpcBatch::answer, "value"_a.none() = nb::none(),
           nb::sig("def __call__(self, value: object = None) -> None"))
      .def("fail", nb::overload_cast<nb::handle>(&RpcBatch::fail), "error"_a.none(),
           "Give all callers the same error.",
           nb::sig("def fail(self, error: BaseException | str) -> None"))
      .def("__len__", &RpcBatch::call_count)
      .def_prop_ro("function", &RpcBatch::function);
  nb::class_<RpcGatherer>(m, "RpcGatherer", nb::type_slots(kCollected<RpcGatherer>))
      .def("__len__", [](const RpcGatherer& self) { return self.gatherer->count(); })
      .def(
          "take",
          [](RpcGatherer& self, nb::handle timeout_s) {
            return self.native->take(self.gatherer, self.options, self.is_ready,
                                     deadline(timeout_s));
          },
          "timeout_s"_a.none(),
          nb::sig("def take(self, timeout_s: float | None) -> tuple[typing.Any, ...] | None"))
      .def(
          "when_added",
          [](RpcGatherer& self, nb::object callback) {
            self.native->when_added(self.gatherer, std::move(callback));
          },
          "callback"_a,
          nb::sig("def when_added(self, callback: collections.abc.Callable[[], object]) -> None"))
      .def("time_left", [](const RpcGatherer& self) -> std::optional<double> {
        const std::optional<Duration> left = self.gatherer->time_left();
        return left ? std::optional(to_seconds(*left)) : std::nullopt;
      });
  nb::class_<RpcFunctions>(m, "RpcFunctions", nb::type_slots(kCollected<RpcFunctions>),
                           "What a peer calls; the peer keeps it.");
  nb::class_<RpcPeer>(m, "RpcPeer", nb::is_weak_referenceable(), "See ``reverie.Rpc``.")
      .def(
          "__init__",
          [](RpcPeer* self, nb::handle name, nb::handle token, bool is_insecure_allowed,
             bool uses_unix, bool uses_tcp, bool uses_shared_memory, bool uses_ucx,
             nb::handle calls_max, double dead_after_s, double find_timeout_s,
             double reach_timeout_s, nb::handle tls, bool allow_pickle) {
            Peer::Options options;
            options.name = text_argument("name", name);
            options.token = text_argument("token", token);
            options.is_insecure_allowed = is_insecure_allowed;
            if (!tls.is_none()) {
              auto [chain, key, authorities, name_of_peers] =
                  nb::cast<std::tuple<std::string, std::string, std::string, std::string>>(tls);
              options.tls = PeerTls{std::move(chain), std::move(key), std::move(authorities),
                                    std::move(name_of_peers)};
            }
            options.uses_unix = uses_unix;
            options.uses_tcp = uses_tcp;
            options.uses_shared_memory = uses_shared_memory;
            options.uses_ucx = uses_ucx;
            options.calls_max =
                integer_argument<std::size_t>("max_pending_calls", calls_max, 1, 1 << 24);
            options.dead_after = seconds(dead_after_s);
            options.find_timeout = seconds(find_timeout_s);
            options.reach_timeout = seconds(reach_timeout_s);
            new (self) RpcPeer(options, allow_pickle ? Pickle::kAllowed : Pickle::kRefused);
          },
          "name"_a.none(), "token"_a.none(), "insecure"_a, "uses_unix"_a, "uses_tcp"_a,
          "uses_shared_memory"_a, "uses_ucx"_a, "calls_max"_a.none(), "dead_after_s"_a,
          "find_timeout_s"_a, "reach_timeout_s"_a, "tls"_a.none(), "allow_pickle"_a,
          nb::sig("def __init__(self, name: str, token: str, insecure: bool, uses_unix: bool, "
                  "uses_tcp: bool, uses_shared_memory: bool, uses_ucx: bool, calls_max: int, "
                  "dead_after_s: float, find_timeout_s: float, reach_timeout_s: float, tls: "
                  "tuple[str, str, str, str] | None, allow_pickle: bool) -> None"))
      .def(
          "listen",
          [](RpcPeer& self, nb::handle address) {
            const std::string text(text_argument("address", address));
            return unwrap(without_gil([&, &peer = self.peer()] { return peer.listen(text); }));
          },
          "address"_a.none(), nb::sig("def listen(self, address: str) -> str"))
      .def(
          "connect",
          [](RpcPeer& self, nb::handle address) {
            const std::string text(text_argument("address", address));
            unwrap(without_gil([&, &peer = self.peer()] { return peer.connect(text); }));
          },
          "address"_a.none(), nb::sig("def connect(self, address: str) -> None"))
      .def(
          "define",
          [](RpcPeer& self, nb::handle name, nb::object handler, bool is_deferred) {
            self.define(std::string(text_argument("name", name)), std::move(handler), is_deferred);
          },
          "name"_a.none(), "handler"_a, "deferred"_a = false,
          nb::sig("def define(self, name: str, handler: collections.abc.Callable[..., object], "
                  "deferred: bool = False) -> None"),
          "With ``deferred`` calls of it come from ``next_task``, with the handler.")
      .def("make_functions", &RpcPeer::make_functions,
           "Where what is defined is kept from now on. Call it once, and keep it.")
      .def("define_gathered", &define_gathered, "name"_a, "function"_a.none(), "size"_a,
           "max_wait_s"_a.none(), "dynamic"_a, "cat"_a, "pad"_a, "device"_a.none(),
           "is_ready"_a.none(), "leaves"_a, "batched"_a, "deferred"_a,
           nb::sig("def define_gathered(self, name: str, function: object, size: int, max_wait_s: "
                   "float | None, dynamic: bool, cat: bool, pad: bool, device: object, is_ready: "
                   "object, leaves: str, batched: bool, deferred: bool) -> RpcGatherer | None"))
      .def(
          "undefine",
          [](RpcPeer& self, nb::handle name) {
            return self.undefine(std::string(text_argument("name", name)));
          },
          "name"_a.none(), nb::sig("def undefine(self, name: str) -> bool"))
      .def(
          "sync",
          [](RpcPeer& self, nb::handle peer, nb::handle function, nb::handle args,
             nb::handle kwargs, nb::handle timeout_s, bool is_idempotent) {
            return self.sync(peer, function, args, kwargs, timeout_s, is_idempotent);
          },
          "peer"_a.none(), "function"_a.none(), "args"_a, "kwargs"_a, "timeout_s"_a.none(),
          "idempotent"_a,
          nb::sig("def sync(self, peer: str, function: str, args: tuple[object, ...], kwargs: "
                  "dict[str, object], timeout_s: "
                  "float | None, idempotent: bool) -> typing.Any"))
      .def(
          "begin",
          [](RpcPeer& self, nb::handle peer, nb::handle function, nb::handle args,
             nb::handle kwargs, nb::handle timeout_s, bool is_idempotent, nb::object pool) {
            auto state = self.begin(peer, function, args, kwargs, timeout_s, is_idempotent,
                                    /*lends=*/false);
            nb::object future = nb::inst_alloc(future_class());
            new (nb::inst_ptr<RpcCall>(future)) RpcCall{
                {"call", std::move(state)}, self.pickle(), self.devices(), std::move(pool), {}};
            nb::inst_mark_ready(future);
            return future;
          },
          "peer"_a.none(), "function"_a.none(), "args"_a, "kwargs"_a, "timeout_s"_a.none(),
          "idempotent"_a, "pool"_a,
          nb::sig("def begin(self, peer: str, function: str, args: tuple[object, ...], kwargs: "
                  "dict[str, object], timeout_s: float | None, idempotent: bool, pool: object) -> "
                  "typing.Any"))
      .def(
          "cancel",
          [](RpcPeer&, RpcCall& call) {
            without_gil([&, &state = *call.state] { state.cancel(); });
          },
          "call"_a)
      .def(
          "when_done",
          [](RpcPeer& self, RpcCall& call, nb::object callback, bool even_if_done) {
            return self.when_done(call.state.pointer(), std::move(callback), even_if_done);
          },
          "call"_a, "callback"_a, "even_if_done"_a = false,
          nb::sig("def when_done(self, call: RpcCall, callback: "
                  "collections.abc.Callable[[], object], even_if_done: bool = False) -> bool"))
      .def("next_task", &RpcPeer::next_task,
           nb::sig("def next_task(self) -> tuple[typing.Any, ...] | None"))
      .def("answer", &RpcPeer::answer, "session"_a, "call"_a, "value"_a.none(),
           nb::sig("def answer(self, session: int, call: int, value: object) -> None"))
      .def("fail", &RpcPeer::fail, "session"_a, "call"_a, "code"_a, "type"_a, "text"_a,
           "traceback"_a)
      .def("tell_withdrawn", [](RpcPeer& self) { self.tasks().tell_withdrawn(); })
      .def(
          "is_wanted",
          [](RpcPeer& self, std::uint64_t session, std::uint64_t call) {
            return self.peer().is_wanted({session, call});
          },
          "session"_a, "call"_a)
      .def(
          "set_ways",
          [](RpcPeer& self, bool uses_unix, bool uses_tcp, bool uses_shared_memory, bool uses_ucx) {
            unwrap(self.peer().set_ways(uses_unix, uses_tcp, uses_shared_memory, uses_ucx));
          },
          "uses_unix"_a, "uses_tcp"_a, "uses_shared_memory"_a, "uses_ucx"_a)
      .def(
          "set_threads_max",
          [](RpcPeer& self, std::size_t count) { self.tasks().set_threads_max(count); }, "count"_a)
      .def("needs_thread", [](RpcPeer& self) { return self.tasks().needs_thread(); })
      .def("expect_thread", [](RpcPeer& self) { self.tasks().expect_thread(); })
      .def("note_thread_started", [](RpcPeer& self) { self.tasks().note_thread_started(); })
      .def("note_thread_failed", [](RpcPeer& self) { self.tasks().note_thread_failed(); })
      .def("check_open", [](RpcPeer& self) { unwrap(self.peer().check_open()); })
      .def(
          "peers", [](RpcPeer& self) { return peer_list(self.peer()); },
          nb::sig("def peers(self) -> list[dict[str, typing.Any]]"))
      .def("functions", [](RpcPeer& self) { return self.peer().functions(); })
      .def("addresses", [](RpcPeer& self) { return self.peer().addresses(); })
      .def("pending_calls", [](RpcPeer& self) { return self.peer().pending_calls(); })
      .def(
          "devices", [](RpcPeer& self) { return device_counts(self); },
          nb::sig("def devices(self) -> dict[str, typing.Any]"))
      .def("close", &RpcPeer::close);
}

}  // namespace reverie::python
