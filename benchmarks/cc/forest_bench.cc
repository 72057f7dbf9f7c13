// An all-reduce over 2 to 128 members on simulated links: how many steps, bytes and seconds a tree,
// a forest and a ring take. benchmarks/figures/forest.py draws it.
//
// Tree and forest are the real ReduceRound over the real trees (topology.h); a ring, which Reverie
// does not have, is simulated over the same links. Each member has one link in each direction, all
// of equal rate, which carries one message after the other; a message reaches the receiver's link
// one latency after the sender's link began with it. Combining takes no time. Counters, for an
// array of N bytes at R bytes/s:
//
//     steps   messages on the longest chain of messages that wait for each other
//     bytes   sent by the member that sends most, as a multiple of N
//     time    until all members have the result, as a multiple of N / R
//
// The forest's array has as many parts as an array of 128 MiB, and the latency is 1.6e-4 N / R: 20
// us for links of 1 GB/s. The tree's array has one part, as the moolib paper describes it.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <map>
#include <memory>
#include <queue>
#include <string>
#include <tuple>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/check.h"
#include "reverie/base/format.h"
#include "reverie/group/reduce_round.h"
#include "reverie/reduce/topology.h"

namespace reverie {
namespace {

constexpr std::size_t kForestBytes = std::size_t{4} << 20;
constexpr std::size_t kForestPartsMin = 128;  // of 1 MiB
constexpr std::size_t kTreeBytes = std::size_t{1} << 20;
constexpr double kLatency = 1.6e-4;

// Simulated links. Time is in units of N / R.
class Links {
 public:
  Links(std::size_t members, std::size_t array_bytes)
      : array_bytes_(static_cast<double>(array_bytes)),
        out_free_(members),
        in_free_(members),
        sent_(members) {}

  // The time at which the message reaches the receiver's link.
  double send(std::size_t from, double bytes, double now) {
    const double takes = bytes / array_bytes_;
    const double begin = std::max(now, out_free_[from]);
    out_free_[from] = begin + takes;
    sent_[from] += takes;
    return begin + kLatency;
  }
  // The time at which that link has carried it. Must be called in the order of `reached`.
  double receive(std::size_t to, double bytes, double reached) {
    in_free_[to] = std::max(reached, in_free_[to]) + bytes / array_bytes_;
    return in_free_[to];
  }
  double most_sent() const { return *std::max_element(sent_.begin(), sent_.end()); }

 private:
  const double array_bytes_;
  std::vector<double> out_free_;
  std::vector<double> in_free_;
  std::vector<double> sent_;
};

struct Outcome {
  std::size_t steps = 0;
  double bytes = 0;
  double time = 0;
};

struct Message {
  double when;           // the message reaches the receiver's link, and later: has arrived
  std::uint64_t number;  // of two messages at the same time the one sent first comes first
  bool has_arrived;
  std::size_t from;
  std::size_t steps;
  RoundPart part;
  bool operator>(const Message& other) const {
    return std::tie(when, number) > std::tie(other.when, other.number);
  }
};

double size_of(const RoundPart& part) {
  return static_cast<double>(part.bulk.empty() ? 0 : part.bulk[0].bytes.size());
}

Outcome run_rounds(std::size_t members, std::size_t array_bytes, std::size_t layout_members) {
  const std::vector<std::byte> zeros(array_bytes);
  const ReduceLeaf leaf{"x", DType::kFloat32, {static_cast<std::int64_t>(array_bytes / 4)}, zeros};
  const auto layout = std::make_shared<const ReduceLayout>(
      std::move(*ReduceLayout::make(ReduceOp::kSum, {&leaf, 1}, layout_members)));
  std::vector<std::unique_ptr<ReduceRound>> rounds;
  Links links(members, array_bytes);
  std::priority_queue<Message, std::vector<Message>, std::greater<>> on_the_way;
  std::map<std::pair<std::size_t, std::size_t>, std::size_t> steps;  // by member and part
  std::uint64_t next = 0;
  Outcome outcome;
  const auto send = [&](std::size_t from, std::vector<RoundPart> parts, double now) {
    for (RoundPart& part : parts) {
      const double reaches = links.send(from, size_of(part), now);
      const std::size_t chain = steps[{from, part.part}] + 1;
      on_the_way.push({reaches, next++, false, from, chain, std::move(part)});
    }
  };
  for (std::size_t m = 0; m < members; ++m) {
    auto buffer = Allocator::heap().allocate(array_bytes);
    REVERIE_CHECK(buffer.ok());
    rounds.push_back(std::make_unique<ReduceRound>(
        layout, std::make_shared<Buffer>(std::move(*buffer)), m, members));
  }
  for (std::size_t m = 0; m < members; ++m) {
    std::vector<RoundPart> parts;
    rounds[m]->start(parts);
    send(m, std::move(parts), 0);
  }
  while (!on_the_way.empty()) {
    Message message = on_the_way.top();
    on_the_way.pop();
    const std::size_t to = message.part.to;
    if (!message.has_arrived) {
      message.when = links.receive(to, size_of(message.part), message.when);
      message.has_arrived = true;
      on_the_way.push(std::move(message));
      continue;
    }
    std::size_t& chain = steps[{to, message.part.part}];
    chain = std::max(chain, message.steps);
    outcome.steps = std::max(outcome.steps, chain);
    outcome.time = std::max(outcome.time, message.when);
    Payload payload;
    payload.bulk = std::move(message.part.bulk);
    std::vector<RoundPart> parts;
    const Status taken = rounds[to]->take(message.from, message.part.is_up, message.part.part,
                                          std::move(payload), parts);
    REVERIE_CHECK(taken.ok());
    if (message.part.must_arrive) rounds[message.from]->arrived();
    send(to, std::move(parts), message.when);
  }
  for (const auto& round : rounds) REVERIE_CHECK(round->is_done());
  outcome.bytes = links.most_sent();
  return outcome;
}

Outcome run_ring(std::size_t members) {
  Links links(members, members);  // each chunk has one byte
  std::vector<double> has(members);
  Outcome outcome;
  outcome.steps = 2 * (members - 1);
  for (std::size_t step = 0; step < outcome.steps; ++step) {
    std::vector<double> next(members);
    for (std::size_t m = 0; m < members; ++m) {
      const std::size_t to = (m + 1) % members;
      next[to] = links.receive(to, 1, links.send(m, 1, has[m]));
    }
    has = next;
  }
  outcome.bytes = links.most_sent();
  outcome.time = *std::max_element(has.begin(), has.end());
  return outcome;
}

void report(benchmark::State& state, const Outcome& outcome) {
  state.counters["steps"] = static_cast<double>(outcome.steps);
  state.counters["bytes"] = outcome.bytes;
  state.counters["time"] = outcome.time;
}

void BM_Tree(benchmark::State& state) {
  Outcome outcome;
  for (auto _ : state) {
    outcome = run_rounds(static_cast<std::size_t>(state.range(0)), kTreeBytes, 1);
  }
  report(state, outcome);
}
void BM_Forest(benchmark::State& state) {
  Outcome outcome;
  for (auto _ : state) {
    // This layout has as many parts as an array of 128 MiB has over `members` members.
    const auto members = static_cast<std::size_t>(state.range(0));
    const std::size_t parts = (kForestPartsMin / members + 1) * members;
    outcome = run_rounds(members, kForestBytes, parts);
  }
  report(state, outcome);
}
void BM_Ring(benchmark::State& state) {
  Outcome outcome;
  for (auto _ : state) outcome = run_ring(static_cast<std::size_t>(state.range(0)));
  report(state, outcome);
}

// The label lists the trees: "child>parent child>parent ..." of tree 0, a semicolon, and so on.
void BM_Topology(benchmark::State& state) {
  const auto members = static_cast<std::size_t>(state.range(0));
  std::string label;
  for (auto _ : state) {
    label.clear();
    for (std::size_t tree = 0; tree < members; ++tree) {
      for (std::size_t m = 0; m < members; ++m) {
        const TreePlace place = place_in_tree(m, tree, members);
        if (place.parent) label += format("{}>{} ", m, *place.parent);
      }
      label.back() = ';';
    }
  }
  state.SetLabel(label);
}

const std::vector<std::int64_t> kMembers = {2,  3,  4,  5,  6,  7,  8,  12,  16,
                                            24, 31, 32, 48, 63, 64, 96, 127, 128};
void members(benchmark::internal::Benchmark* bench) {
  for (const std::int64_t count : kMembers) bench->Arg(count);
  bench->Iterations(1)->Unit(benchmark::kMillisecond);
}
BENCHMARK(BM_Tree)->Apply(members);
BENCHMARK(BM_Forest)->Apply(members);
BENCHMARK(BM_Ring)->Apply(members);
BENCHMARK(BM_Topology)->Arg(4)->Arg(7)->Arg(8)->Iterations(1);

}  // namespace
}  // namespace reverie

BENCHMARK_MAIN();
