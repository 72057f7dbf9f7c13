// The measurements of Zhang et al. 2021, "Parallel Actors and Learners", repeated.
// benchmarks/figures/paper.py draws them.
//
// BM_Sample, BM_Insert   Figure 9: a draw, and a new weight, over the fanout K and four capacities.
//                        An item is one of a batch of 64. Also aligned against unaligned nodes.
// BM_Loop                Figure 10: each thread inserts one transition of 76 bytes, draws 64,
//                        copies them, and gives them new weights, 5,000 times. Items/s = loops/s of
//                        all threads. Schemes: one lock around everything; the paper's two locks
//                        and lazy writing, with a lock per item; and no lock, which is incorrect
//                        and serves as a bound. Ours is BM_Loop of replay_threads_bench.
#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "benchmarks/cc/peer_trees.h"
#include "reverie/sum_tree/sum_tree.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kFloats = 19;  // 76 bytes: two observations of 8, action, reward, done

class Ours {
 public:
  explicit Ours(std::size_t leaves) { tree_.reach(static_cast<Slot>(leaves - 1)); }
  void update(std::span<const Slot> slots, std::span<const float> weights) {
    tree_.update(slots, weights);
    benchmark::DoNotOptimize(tree_.total());
  }
  void draw(std::span<Slot> slots) { tree_.draw(lanes_, slots, probabilities_); }

 private:
  SumTree tree_;
  Random seeds_{std::uint64_t{7}};
  RandomLanes lanes_{seeds_};
  std::vector<double> probabilities_ = std::vector<double>(kBatch);
};

// A full tree, and batches of slots for it.
template <typename Tree>
struct Filled {
  explicit Filled(std::size_t leaf_count) : leaves(leaf_count), tree(leaf_count) {
    Random random(std::uint64_t{11});
    for (std::size_t slot = 0; slot < leaves; ++slot) {
      const auto weight = static_cast<float>(4 * random.uniform() + 1e-3);
      const auto place = static_cast<Slot>(slot);
      tree.update({&place, 1}, {&weight, 1});
    }
    for (Slot& slot : slots) slot = static_cast<Slot>(random.below(leaves));
    for (float& weight : weights) weight = static_cast<float>(4 * random.uniform() + 1e-3);
  }

  std::size_t leaves;
  Tree tree;
  std::vector<Slot> slots = std::vector<Slot>(kBatch * 64);
  std::vector<float> weights = std::vector<float>(kBatch * 64);
};

template <typename Tree>
Filled<Tree>& filled(const benchmark::State& state) {
  static std::unique_ptr<Filled<Tree>> last;
  const auto leaves = static_cast<std::size_t>(state.range(0));
  if (!last || last->leaves != leaves) {
    last.reset();
    last = std::make_unique<Filled<Tree>>(leaves);
  }
  return *last;
}

template <typename Tree>
void BM_Sample(benchmark::State& state) {
  auto& work = filled<Tree>(state);
  std::array<Slot, kBatch> drawn;
  for (auto _ : state) {
    work.tree.draw(drawn);
    benchmark::DoNotOptimize(drawn.data());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}

template <typename Tree>
void BM_Insert(benchmark::State& state) {
  auto& work = filled<Tree>(state);
  std::size_t batch = 0;
  for (auto _ : state) {
    const std::size_t begin = batch++ % 64 * kBatch;
    work.tree.update(std::span(work.slots).subspan(begin, kBatch),
                     std::span(work.weights).subspan(begin, kBatch));
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kBatch));
}

void capacities(benchmark::internal::Benchmark* bench) {
  bench->RangeMultiplier(10)->Range(10'000, 10'000'000)->MinTime(0.05);
}

using Unaligned = Paper<16, 8>;  // nodes begin half a line later
#define REVERIE_FIGURE_9(...)                                    \
  BENCHMARK_TEMPLATE(BM_Sample, __VA_ARGS__)->Apply(capacities); \
  BENCHMARK_TEMPLATE(BM_Insert, __VA_ARGS__)->Apply(capacities)
REVERIE_FIGURE_9(Paper<2>);
REVERIE_FIGURE_9(Paper<4>);
REVERIE_FIGURE_9(Paper<8>);
REVERIE_FIGURE_9(Paper<16>);
REVERIE_FIGURE_9(Paper<32>);
REVERIE_FIGURE_9(Paper<64>);
REVERIE_FIGURE_9(Unaligned);
REVERIE_FIGURE_9(Ours);

// --- Figure 10

using Row = std::array<float, kFloats>;

// The common part of the schemes: a ring of rows, the tree over them, and memory of each thread.
class Replay {
 public:
  struct Thread {
    explicit Thread(int index) : random(static_cast<std::uint64_t>(index) + 1) {}
    Random random;
    Row row{};
    std::array<Slot, kBatch> slots{};
    std::array<Row, kBatch> batch{};
  };

  explicit Replay(std::size_t capacity) : capacity_(capacity), rows_(capacity), tree_(capacity) {
    for (std::size_t slot = 0; slot < capacity; ++slot) {
      const auto place = static_cast<Slot>(slot);
      const float weight = 1;
      tree_.update({&place, 1}, {&weight, 1});
    }
  }

 protected:
  Slot next_slot() {
    return static_cast<Slot>(next_.fetch_add(1, std::memory_order_relaxed) % capacity_);
  }
  Slot draw(Thread& thread) const {
    // Without a lock the sums may be inconsistent for a moment.
    return std::min(tree_.find(thread.random.uniform()), static_cast<Slot>(capacity_ - 1));
  }

  const std::size_t capacity_;
  std::vector<Row> rows_;
  Paper<16> tree_;

 private:
  std::atomic<std::uint64_t> next_{0};
};

float new_weight(Replay::Thread& thread) {
  return static_cast<float>(thread.random.uniform() + 0.01);
}

template <bool kLocks>
class WholeLock : public Replay {
 public:
  using Replay::Replay;
  void loop(Thread& thread) {
    const auto guarded = [&](auto work) {
      if constexpr (kLocks) {
        const std::lock_guard lock(mutex_);
        work();
      } else {
        work();
      }
    };
    guarded([&] {
      const Slot slot = next_slot();
      const float weight = 1;
      rows_[slot] = thread.row;
      tree_.update({&slot, 1}, {&weight, 1});
    });
    guarded([&] {
      for (std::size_t i = 0; i < kBatch; ++i) {
        thread.slots[i] = draw(thread);
        thread.batch[i] = rows_[thread.slots[i]];
      }
    });
    guarded([&] {
      for (const Slot slot : thread.slots) {
        const float weight = new_weight(thread);
        tree_.update({&slot, 1}, {&weight, 1});
      }
    });
  }

 private:
  std::mutex mutex_;
};
using GlobalLock = WholeLock<true>;
using NoLock = WholeLock<false>;

// Algorithm 3 as published: the tree's lock, with the leaves' lock inside.
class TwoLocks : public Replay {
 public:
  using Replay::Replay;
  void loop(Thread& thread) {
    const Slot slot = next_slot();
    set(slot, 0);  // so that it is not drawn while it is written
    rows_[slot] = thread.row;
    set(slot, 1);
    for (Slot& drawn : thread.slots) {
      const std::lock_guard lock(tree_mutex_);
      drawn = draw(thread);
    }
    for (std::size_t i = 0; i < kBatch; ++i) thread.batch[i] = rows_[thread.slots[i]];
    for (const Slot drawn : thread.slots) set(drawn, new_weight(thread));
  }

 private:
  void set(Slot slot, float weight) {
    const std::lock_guard tree_lock(tree_mutex_);
    float difference = 0;
    {
      const std::lock_guard leaf_lock(leaf_mutex_);
      difference = tree_.set_leaf(slot, weight);
    }
    tree_.add_above(slot, difference);
  }

  std::mutex tree_mutex_;
  std::mutex leaf_mutex_;
};

template <typename Scheme>
void BM_Loop(benchmark::State& state) {
  static std::unique_ptr<Scheme> replay;  // shared by all threads; the first one makes it
  if (state.thread_index() == 0) {
    replay = std::make_unique<Scheme>(static_cast<std::size_t>(state.range(0)));
  }
  Replay::Thread thread(state.thread_index());
  for (auto _ : state) {
    replay->loop(thread);
    benchmark::DoNotOptimize(thread.batch.data());
  }
  state.SetItemsProcessed(state.iterations());
  if (state.thread_index() == 0) replay.reset();
}

void loops(benchmark::internal::Benchmark* bench) {
  bench->Arg(100'000)
      ->Arg(1'000'000)
      ->Iterations(5'000)
      ->ThreadRange(1, static_cast<int>(std::max(2u, std::thread::hardware_concurrency())))
      ->UseRealTime();
}
BENCHMARK_TEMPLATE(BM_Loop, GlobalLock)->Apply(loops);
BENCHMARK_TEMPLATE(BM_Loop, TwoLocks)->Apply(loops);
BENCHMARK_TEMPLATE(BM_Loop, NoLock)->Apply(loops);

}  // namespace
}  // namespace reverie
