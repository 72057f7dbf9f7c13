// Binds groups, for reverie/groups.py.
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/leaf_view.h"
#include "python/bindings/process_bound.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc.h"
#include "python/bindings/rpc_values.h"
#include "reverie/accumulator/accumulator.h"
#include "reverie/group/broker.h"
#include "reverie/group/group.h"

namespace reverie::python {
namespace {

struct NativeGroup {
  ProcessBound<std::shared_ptr<Group>> group;
  Pickle pickle;  // of its peer
  LeafReader reader;
};

struct NativeRound {
  ProcessBound<std::shared_ptr<GroupRound>> round;
  Pickle pickle = Pickle::kRefused;
};

struct NativeAccumulator {
  ProcessBound<std::unique_ptr<Accumulator>> accumulator;
  Pickle pickle;  // of its peer
  LeafReader reader;
  // Were taken, and are not adopted yet; never both.
  std::optional<Payload> state;
  std::optional<Accumulator::Sum> sum;
};

struct NativeBroker {
  ProcessBound<std::unique_ptr<Broker>> broker;
};

bool wait_for_round(const GroupRound& round, TimePoint deadline) {
  return round.is_done() || wait_in_slices(deadline, [&round](TimePoint until) {
           (void)round.wait(until);
           return round.is_done();
         });
}

// The arrays as the library reads them. `keep` holds temporary objects.
std::vector<ReduceLeaf> leaves_of(LeafReader& reader, nb::list arrays, nb::list names,
                                  std::vector<LeafView>& views) {
  std::vector<ReduceLeaf> leaves;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    ReduceLeaf leaf;
    leaf.name = nb::cast<std::string>(names[i]);
    const nb::object array = arrays[i];
    views.push_back(reader.read(array.ptr(), leaf.name));
    const LeafView& view = views.back();
    if (view.framework == Framework::kNone || (view.data == nullptr && !view.is_on_cpu)) {
      raise_type_error(format("{} is not an array on the CPU; convert it first",
                              leaf.name.empty() ? "data" : "'" + leaf.name + "'"));
    }
    leaf.dtype = view.dtype;
    leaf.shape.assign(view.shape.begin(), view.shape.end());
    const std::size_t size =
        static_cast<std::size_t>(element_count(leaf.shape)) * dtype_size_bytes(view.dtype);
    if (view.data == nullptr && size > 0) {
      raise_type_error(format("{} is not row-major; copy it first",
                              leaf.name.empty() ? "data" : "'" + leaf.name + "'"));
    }
    leaf.bytes = {view.data, size};
    leaves.push_back(std::move(leaf));
  }
  return leaves;
}

NativeRound bound(std::shared_ptr<GroupRound> round, Pickle pickle) {
  return {{"round", std::move(round)}, pickle};
}

NativeRound begun(Result<std::shared_ptr<GroupRound>> round, Pickle pickle) {
  return bound(unwrap(std::move(round)), pickle);
}

Payload payload_of(NativeGroup& group, nb::handle value) {
  Payload payload;
  ValueEncoder encoder(payload, group.reader, /*lends=*/false, group.pickle);
  encoder.encode(value, "value");
  return payload;
}

nb::tuple membership_tuple(const Membership& membership) {
  nb::list names;
  for (const Member& member : membership.members) names.append(member.name);
  return nb::make_tuple(membership.epoch, membership.id, names);
}

// Array i of the result; a view of the round's memory if its elements need no conversion.
nb::object reduced_array(const GroupRound& round, std::size_t i) {
  const ReduceLayout::Piece& piece = round.layout().pieces().at(i);
  if (combining_dtype(piece.dtype) == piece.dtype) {
    auto* const kept = new std::shared_ptr<Buffer>(round.reduced());
    const nb::capsule owner(
        kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<Buffer>*>(p); });
    return view_array(piece.dtype, piece.shape, round.reduced()->data() + piece.offset, owner);
  }
  nb::object array = new_array(piece.dtype, piece.shape);
  round.layout().unload(i, round.reduced()->bytes(), array_data(array));
  return array;
}

// (leader, is connected, wants gradients, wants state, version, state or None, counts and round or
// None); the state as a tuple of one.
nb::tuple view_tuple(const Accumulator::View& view, const NativeAccumulator& taken) {
  nb::object state = nb::none();
  if (taken.state) state = nb::make_tuple(decode_value(*taken.state, taken.pickle));
  nb::object sum = nb::none();
  if (taken.sum) {
    const AccumulatorCore::Counts& totals = taken.sum->totals;
    sum = nb::make_tuple(totals.contributions, totals.skipped, totals.samples,
                         bound(taken.sum->round, taken.pickle));
  }
  return nb::make_tuple(view.leader, view.is_connected, view.wants_gradients, view.wants_state,
                        view.version, state, sum);
}

void bind_accumulator(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NativeAccumulator>(m, "Accumulator", nb::is_weak_referenceable(),
                                "See ``reverie.Accumulator``.")
      .def(
          "__init__",
          [](NativeAccumulator* self, RpcPeer& rpc, NativeGroup& group, const std::string& name,
             const std::string& average, std::vector<std::string> signature, nb::list gradients) {
            Accumulator::Options options;
            options.name = name;
            options.average = average;
            options.signature = std::move(signature);
            LeafReader reader;
            for (std::size_t i = 0; i < gradients.size(); ++i) {
              const nb::object gradient = gradients[i];
              ReduceLeaf leaf;
              leaf.name = format("parameters[{}]", i);
              const LeafView view = reader.read(gradient.ptr(), leaf.name);
              leaf.dtype = view.dtype;
              leaf.shape.assign(view.shape.begin(), view.shape.end());
              options.gradients.push_back(std::move(leaf));
            }
            const auto& peer = rpc.shared_peer();
            const auto& shared = group.group.pointer();
            auto made =
                unwrap(without_gil([&] { return Accumulator::make(peer, shared, options); }));
            new (self)
                NativeAccumulator{{"accumulator", std::move(made)}, rpc.pickle(), {}, {}, {}};
          },
          "rpc"_a, "group"_a, "name"_a, "average"_a, "signature"_a, "gradients"_a,
          nb::sig("def __init__(self, rpc: RpcPeer, group: Group, name: str, average: str, "
                  "signature: list[str], gradients: list[typing.Any]) -> None"))
      .def(
          "update",
          [](NativeAccumulator& self, bool is_busy) {
            // Decoding and copying may fail, and the program may be interrupted before it has what
            // this returns: a state or a sum is returned until adopted().
            const bool is_adopting = self.state.has_value() || self.sum.has_value();
            Accumulator::View view = unwrap(without_gil([&, &accumulator = *self.accumulator] {
              return accumulator.update(is_busy || is_adopting);
            }));
            if (view.state) self.state = std::move(view.state);
            if (view.sum) self.sum = std::move(view.sum);
            return view_tuple(view, self);
          },
          "is_busy"_a,
          nb::sig("def update(self, is_busy: bool) -> tuple[str, bool, bool, bool, int, "
                  "tuple[typing.Any] | None, tuple[int, int, int, GroupRound] | None]"))
      .def("adopted",
           [](NativeAccumulator& self) {
             self.state.reset();
             self.sum.reset();
           })
      .def(
          "contribute",
          [](NativeAccumulator& self, std::uint64_t samples, nb::list arrays, nb::list names,
             std::uint64_t weight) {
            std::vector<LeafView> views;
            const std::vector<ReduceLeaf> leaves = leaves_of(self.reader, arrays, names, views);
            unwrap(without_gil([&, &accumulator = *self.accumulator] {
              return accumulator.contribute(samples, leaves, weight);
            }));
          },
          "samples"_a, "arrays"_a, "names"_a, "weight"_a,
          nb::sig("def contribute(self, samples: int, arrays: list[typing.Any], names: list[str], "
                  "weight: int) -> None"))
      .def(
          "give_state",
          [](NativeAccumulator& self, nb::handle model, nb::handle buffers, nb::handle state,
             bool to_all) {
            Payload payload;
            ValueWriter(payload).begin(ValueKind::kTuple, 3);
            ValueEncoder encoder(payload, self.reader, /*lends=*/false, self.pickle);
            encoder.encode(model, "parameters");
            encoder.encode(buffers, "buffers");
            encoder.encode(state, "state");
            unwrap(without_gil([&, &accumulator = *self.accumulator] {
              return accumulator.give_state(payload, to_all);
            }));
          },
          "model"_a, "buffers"_a, "state"_a.none(), "to_all"_a,
          nb::sig("def give_state(self, model: object, buffers: object, state: object, to_all: "
                  "bool) -> None"))
      .def(
          "set_version",
          [](NativeAccumulator& self, std::uint64_t version) {
            without_gil(
                [&, &accumulator = *self.accumulator] { accumulator.set_version(version); });
          },
          "version"_a)
      .def(
          "set_virtual_batch_size",
          [](NativeAccumulator& self, std::uint64_t size) {
            without_gil([&, &accumulator = *self.accumulator] {
              accumulator.set_virtual_batch_size(size);
            });
          },
          "size"_a)
      .def(
          "set_parallel",
          [](NativeAccumulator& self, std::size_t count) {
            without_gil([&, &accumulator = *self.accumulator] { accumulator.set_parallel(count); });
          },
          "count"_a)
      .def("why_waiting", [](NativeAccumulator& self) { return self.accumulator->why_waiting(); })
      .def("close", [](NativeAccumulator& self) {
        Accumulator* const accumulator = self.accumulator.here();
        if (accumulator != nullptr) without_gil([&] { accumulator->close(); });
      });
}

void check_reduced(const GroupRound& round) {
  if (!round.is_done()) raise(failed_precondition("the round has no result yet; wait for it"));
  unwrap(round.wait(TimePoint{}));
}

}  // namespace

void bind_group(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<NativeRound>(m, "GroupRound", "See ``reverie.groups.Round``.")
      .def("is_done", [](NativeRound& self) { return self.round->is_done(); })
      .def(
          "wait",
          [](NativeRound& self, nb::handle timeout_s) {
            return wait_for_round(*self.round, deadline(timeout_s));
          },
          "timeout_s"_a.none(), nb::sig("def wait(self, timeout_s: float | None) -> bool"))
      .def("cancel",
           [](NativeRound& self) { without_gil([&, &round = *self.round] { round.cancel(); }); })
      .def("lost", [](NativeRound& self) { return self.round->lost(); })
      .def("members", [](NativeRound& self) { return self.round->members(); })
      .def(
          "error",
          [](NativeRound& self) -> nb::object {
            if (!self.round->is_done()) return nb::none();
            const Status status = self.round->wait(TimePoint{});
            return status.ok() ? nb::none() : make_error(status);
          },
          nb::sig("def error(self) -> Exception | None"))
      .def(
          "array",
          [](NativeRound& self, std::size_t index) {
            check_reduced(*self.round);
            return reduced_array(*self.round, index);
          },
          "index"_a, nb::sig("def array(self, index: int) -> typing.Any"))
      .def(
          "copy_to",
          [](NativeRound& self, std::size_t index, nb::handle array) {
            check_reduced(*self.round);
            LeafReader reader;
            const LeafView view = reader.read(array.ptr(), "array");
            const ReduceLayout::Piece& piece = self.round->layout().pieces().at(index);
            const bool has_memory = view.data != nullptr || piece.count == 0;
            if (!has_memory || view.dtype != piece.dtype ||
                static_cast<std::size_t>(element_count(view.shape)) != piece.count) {
              raise_type_error("the array to copy to is of another kind than the one reduced");
            }
            if (piece.count == 0) return;
            self.round->layout().unload(index, self.round->reduced()->bytes(),
                                        const_cast<std::byte*>(view.data));
          },
          "index"_a, "array"_a, nb::sig("def copy_to(self, index: int, array: object) -> None"))
      .def(
          "values",
          [](NativeRound& self, bool copies) {
            check_reduced(*self.round);
            nb::dict values;
            for (auto& [member, payload] : self.round->values()) {
              for (BulkPiece& piece : payload.bulk) {
                if (copies) piece = kept_copy(piece.bytes);
              }
              values[nb::int_(member)] = decode_value(payload, self.pickle);
            }
            return values;
          },
          "copies"_a, nb::sig("def values(self, copies: bool) -> dict[int, typing.Any]"));

  nb::class_<NativeGroup>(m, "Group", nb::is_weak_referenceable(), "See ``reverie.Group``.")
      .def(
          "__init__",
          [](NativeGroup* self, RpcPeer& rpc, const std::string& name, const std::string& broker,
             std::int64_t sort_order, nb::handle stall_timeout_s, bool shared_memory,
             const std::string& host) {
            Group::Options options;
            options.uses_shared_memory = shared_memory;
            options.host = host;
            options.name = name;
            options.broker = broker;
            options.sort_order = sort_order;
            if (!stall_timeout_s.is_none()) {
              options.stall_timeout = seconds(number_argument("stall_timeout_s", stall_timeout_s));
            }
            auto group = unwrap(
                without_gil([&, &peer = rpc.shared_peer()] { return Group::join(peer, options); }));
            new (self)
                NativeGroup{{"group", std::shared_ptr<Group>(std::move(group))}, rpc.pickle(), {}};
          },
          "rpc"_a, "name"_a, "broker"_a, "sort_order"_a, "stall_timeout_s"_a.none(),
          "shared_memory"_a, "host"_a,
          nb::sig("def __init__(self, rpc: RpcPeer, name: str, broker: str, sort_order: int, "
                  "stall_timeout_s: float | None, shared_memory: bool, host: str) -> None"))
      .def(
          "host_count",
          [](NativeGroup& self) -> nb::object {
            const std::optional<std::size_t> hosts = self.group->host_count();
            return hosts ? nb::cast(*hosts) : nb::none();
          },
          nb::sig("def host_count(self) -> int | None"))
      .def(
          "shares_memory",
          [](NativeGroup& self) -> nb::object {
            const std::optional<bool> shares = self.group->shares_memory();
            return shares ? nb::cast(*shares) : nb::none();
          },
          nb::sig("def shares_memory(self) -> bool | None"))
      .def("update",
           [](NativeGroup& self) {
             return without_gil([&, &group = *self.group] { return group.update(); });
           })
      .def(
          "membership",
          [](NativeGroup& self) { return membership_tuple(self.group->membership()); },
          nb::sig("def membership(self) -> tuple[int, int, list[str]]"))
      .def(
          "wait_members",
          [](NativeGroup& self, std::size_t count, nb::handle timeout_s) {
            Status status;
            wait_in_slices(deadline(timeout_s), [&, &group = *self.group](TimePoint until) {
              status = group.wait_members(count, until);
              return status.code() != StatusCode::kDeadlineExceeded;
            });
            unwrap(status);
          },
          "count"_a, "timeout_s"_a.none(),
          nb::sig("def wait_members(self, count: int, timeout_s: float | None) -> None"))
      .def(
          "set_sort_order",
          [](NativeGroup& self, std::int64_t sort_order) {
            without_gil([&, &group = *self.group] { group.set_sort_order(sort_order); });
          },
          "sort_order"_a)
      .def(
          "set_stall_timeout",
          [](NativeGroup& self, nb::handle timeout_s) {
            const Duration timeout = timeout_s.is_none()
                                         ? Duration::max()
                                         : seconds(number_argument("timeout_s", timeout_s));
            without_gil([&, &group = *self.group] { group.set_stall_timeout(timeout); });
          },
          "timeout_s"_a.none(),
          nb::sig("def set_stall_timeout(self, timeout_s: float | None) -> None"))
      .def("why_waiting", [](NativeGroup& self) { return self.group->why_waiting(); })
      .def("leave",
           [](NativeGroup& self) {
             Group* const group = self.group.here();
             if (group != nullptr) without_gil([&] { group->leave(); });
           })
      .def(
          "all_reduce",
          [](NativeGroup& self, const std::string& name, const std::string& op, nb::list arrays,
             nb::list names, nb::handle timeout_s) {
            std::vector<LeafView> views;
            const std::vector<ReduceLeaf> leaves = leaves_of(self.reader, arrays, names, views);
            const auto chosen = reduce_op_from_name(op);
            if (!chosen) raise(invalid_argument("op is '{}', which is unknown", op));
            const TimePoint until = deadline(timeout_s);
            return begun(without_gil([&, &group = *self.group] {
                           return group.all_reduce(name, *chosen, leaves, until);
                         }),
                         self.pickle);
          },
          "name"_a, "op"_a, "arrays"_a, "names"_a, "timeout_s"_a.none(),
          nb::sig("def all_reduce(self, name: str, op: str, arrays: list[typing.Any], names: "
                  "list[str], timeout_s: float | None) -> GroupRound"))
      .def(
          "all_gather",
          [](NativeGroup& self, const std::string& name, const std::string& what, nb::handle value,
             nb::handle timeout_s) {
            Payload payload = payload_of(self, value);
            const TimePoint until = deadline(timeout_s);
            return begun(without_gil([&, &group = *self.group] {
                           return group.all_gather(name, what, std::move(payload), until);
                         }),
                         self.pickle);
          },
          "name"_a, "what"_a, "value"_a.none(), "timeout_s"_a.none(),
          nb::sig("def all_gather(self, name: str, what: str, value: object, timeout_s: float | "
                  "None) -> GroupRound"))
      .def(
          "broadcast",
          [](NativeGroup& self, const std::string& name, const std::string& source,
             nb::handle value, nb::handle timeout_s) {
            Payload payload = payload_of(self, value);
            const TimePoint until = deadline(timeout_s);
            return begun(without_gil([&, &group = *self.group] {
                           return group.broadcast(name, source, std::move(payload), until);
                         }),
                         self.pickle);
          },
          "name"_a, "source"_a, "value"_a.none(), "timeout_s"_a.none(),
          nb::sig("def broadcast(self, name: str, source: str, value: object, timeout_s: float | "
                  "None) -> GroupRound"));

  bind_accumulator(m);

  nb::class_<NativeBroker>(m, "Broker", nb::is_weak_referenceable(), "See ``reverie.Broker``.")
      .def(
          "__init__",
          [](NativeBroker* self, RpcPeer& rpc) {
            new (self) NativeBroker{{"broker", unwrap(Broker::make(rpc.shared_peer()))}};
          },
          "rpc"_a)
      .def(
          "groups",
          [](NativeBroker& self) {
            nb::list groups;
            for (const GroupInfo& info : self.broker->groups()) {
              nb::dict entry;
              entry["name"] = info.name;
              entry["epoch"] = info.membership.epoch;
              nb::list members;
              for (const Member& member : info.membership.members) members.append(member.name);
              entry["members"] = members;
              entry["missing"] = info.missing;
              groups.append(entry);
            }
            return groups;
          },
          nb::sig("def groups(self) -> list[dict[str, typing.Any]]"))
      .def("close", [](NativeBroker& self) {
        Broker* const broker = self.broker.here();
        if (broker != nullptr) without_gil([&] { broker->close(); });
      });
}

}  // namespace reverie::python
