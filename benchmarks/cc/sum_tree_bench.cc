// A learner's batch on the sum tree: 256 draws, 256 new weights, and both alternately.
//
// One item is one draw or one update; random numbers are part of a draw. Args: leaves. 10^4 fits in
// the second-level cache, 10^6 does not, 10^7 does not fit in the third. Peers: the paper's design
// (raw f32 sums, a scan that ends early, differences added up to the root) with 8 to 64 children,
// and a binary f64 tree that recomputes parents, as in torchrl.
//
// Estimate, Zen 4 at 3.2 GHz, 10^6 leaves: a draw is 3 levels of 15 instructions with AVX-512, two
// scans of 16 (sums, weights) of 30, and its random number 5, at 3.5 per cycle 10 ns; 3 lines of 64
// bytes from L3 are hidden behind that. An update stores (8), sums 16 weights (15), writes that sum
// (5) and does a part of the nodes above (20): 5 ns, and its 3 lines from L3 another 3.
#include "reverie/sum_tree/sum_tree.h"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>

#include "benchmarks/cc/peer_trees.h"
#include "reverie/base/random.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 256;
constexpr std::size_t kBatches = 64;  // prepared batches, used by turns

template <SumTree::Kernel kKernel>
class Ours {
 public:
  explicit Ours(std::size_t leaves) : tree_(kKernel) { tree_.reach(static_cast<Slot>(leaves - 1)); }
  void update(std::span<const Slot> slots, std::span<const float> weights) {
    tree_.update(slots, weights);
  }
  void settle() { benchmark::DoNotOptimize(tree_.total()); }
  void draw(std::span<Slot> slots) { tree_.draw(lanes_, slots, probabilities_); }

 private:
  SumTree tree_;
  Random seeds_{std::uint64_t{7}};
  RandomLanes lanes_{seeds_};
  std::vector<double> probabilities_ = std::vector<double>(kBatch);
};
using Best = Ours<SumTree::Kernel::kBest>;
using Portable = Ours<SumTree::Kernel::kPortable>;

// A tree with weights, and batches of slots and weights for updates.
template <typename Tree>
struct Workload {
  explicit Workload(std::size_t leaf_count) : leaves(leaf_count), tree(leaf_count) {
    Random random(std::uint64_t{11});
    std::vector<Slot> all(kBatch);
    std::vector<float> some(kBatch);
    for (std::size_t begin = 0; begin < leaves; begin += kBatch) {
      const std::size_t count = std::min(kBatch, leaves - begin);
      for (std::size_t i = 0; i < count; ++i) {
        all[i] = static_cast<Slot>(begin + i);
        some[i] = static_cast<float>(4 * random.uniform() + 1e-3);
      }
      tree.update(std::span(all).first(count), std::span(some).first(count));
    }
    tree.settle();
    slots.resize(kBatch * kBatches);
    weights.resize(slots.size());
    for (Slot& slot : slots) slot = static_cast<Slot>(random.below(leaves));
    for (float& weight : weights) weight = static_cast<float>(4 * random.uniform() + 1e-3);
  }
  void update(std::size_t batch) {
    const std::size_t begin = batch % kBatches * kBatch;
    tree.update(std::span(slots).subspan(begin, kBatch), std::span(weights).subspan(begin, kBatch));
  }

  std::size_t leaves;
  Tree tree;
  std::vector<Slot> slots;
  std::vector<float> weights;
};

// Returns the tree of the last call if it fits: benchmark functions run several times.
template <typename Tree>
Workload<Tree>& workload(const benchmark::State& state) {
  static std::unique_ptr<Workload<Tree>> last;
  const auto leaves = static_cast<std::size_t>(state.range(0));
  if (!last || last->leaves != leaves) {
    last.reset();
    last = std::make_unique<Workload<Tree>>(leaves);
  }
  return *last;
}

void tell_per_item(benchmark::State& state) {
  state.counters["item_s"] = benchmark::Counter(
      static_cast<double>(kBatch),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

template <typename Tree>
void BM_Draw(benchmark::State& state) {
  auto& work = workload<Tree>(state);
  std::vector<Slot> drawn(kBatch);
  for (auto _ : state) {
    work.tree.draw(drawn);
    benchmark::DoNotOptimize(drawn.data());
  }
  tell_per_item(state);
}

// Sets new weights of random slots, and reads the total after each batch.
template <typename Tree>
void BM_Update(benchmark::State& state) {
  auto& work = workload<Tree>(state);
  std::size_t batch = 0;
  for (auto _ : state) {
    work.update(batch++);
    work.tree.settle();
  }
  tell_per_item(state);
}

// The same without reading in between: ours then computes its sums once in four batches.
template <typename Tree>
void BM_UpdateStream(benchmark::State& state) {
  auto& work = workload<Tree>(state);
  std::size_t batch = 0;
  for (auto _ : state) work.update(batch++);
  work.tree.settle();
  tell_per_item(state);
}

// A learner's loop: draws a batch, and gives the same slots new weights. An item is both.
template <typename Tree>
void BM_DrawAndUpdate(benchmark::State& state) {
  auto& work = workload<Tree>(state);
  std::vector<Slot> drawn(kBatch);
  std::size_t batch = 0;
  for (auto _ : state) {
    work.tree.draw(drawn);
    const std::size_t begin = batch++ % kBatches * kBatch;
    work.tree.update(drawn, std::span(work.weights).subspan(begin, kBatch));
  }
  tell_per_item(state);
}

void leaves(benchmark::internal::Benchmark* bench) {
  bench->RangeMultiplier(10)->Range(10'000, 10'000'000)->MinTime(0.1);
}

#define REVERIE_TREE_BENCH(Tree)                      \
  BENCHMARK_TEMPLATE(BM_Draw, Tree)->Apply(leaves);   \
  BENCHMARK_TEMPLATE(BM_Update, Tree)->Apply(leaves); \
  BENCHMARK_TEMPLATE(BM_DrawAndUpdate, Tree)->Apply(leaves)
REVERIE_TREE_BENCH(Best);
BENCHMARK_TEMPLATE(BM_UpdateStream, Best)->Apply(leaves);
REVERIE_TREE_BENCH(Portable);
REVERIE_TREE_BENCH(Paper<8>);
REVERIE_TREE_BENCH(Paper<16>);
REVERIE_TREE_BENCH(Paper<32>);
REVERIE_TREE_BENCH(Paper<64>);
REVERIE_TREE_BENCH(Binary);

}  // namespace
}  // namespace reverie
