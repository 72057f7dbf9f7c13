// The cost of a step of native environments, and what the pool adds to it.
//
// One item is a step of one environment. Batches have 64 environments, with actions drawn before.
// Estimates: CartPole computes a sine, a cosine and three divisions, 20 to 30 ns; LunarLander 180
// iterations over two joints and contacts, 10 to 15 us.
#include <barrier>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/random.h"
#include "reverie/env/native/box2d.h"
#include "reverie/env/native/classic_control.h"
#include "reverie/env/native_pool.h"

namespace reverie {
namespace {

constexpr std::size_t kEnvs = 64;
constexpr std::size_t kActionSets = 64;

const NativeRegistry& registry() {
  static const NativeRegistry* const made = [] {
    auto* registry = new NativeRegistry;
    REVERIE_CHECK(add_classic_control(*registry).ok());
    REVERIE_CHECK(add_box2d_environments(*registry).ok());
    return registry;
  }();
  return *made;
}

// Random actions for `count` environments, from one of a few sets.
class Actions {
 public:
  Actions(const NativeSpec& spec, std::size_t count) {
    Random random(std::uint64_t{3});
    for (std::size_t set = 0; set < kActionSets; ++set) {
      std::vector<std::byte>& bytes = sets_.emplace_back();
      const auto add = [&](const auto& value) {
        const auto* begin = reinterpret_cast<const std::byte*>(&value);
        bytes.insert(bytes.end(), begin, begin + sizeof(value));
      };
      for (std::size_t i = 0; i < count; ++i) {
        if (spec.action_count > 0) {
          add(static_cast<std::int64_t>(
              random.below(static_cast<std::uint64_t>(spec.action_count))));
        }
        for (std::size_t j = 0; j < spec.action_low.size(); ++j) {
          add(spec.action_low[j] +
              static_cast<float>(random.uniform()) * (spec.action_high[j] - spec.action_low[j]));
        }
      }
    }
  }
  const std::vector<std::byte>& next() { return sets_[next_++ % kActionSets]; }

 private:
  std::vector<std::vector<std::byte>> sets_;
  std::size_t next_ = 0;
};

// A pool of 64 environments, stepped on `threads` threads; with 0 the caller's thread does it.
void BM_PoolStep(benchmark::State& state, const std::string& id, std::size_t threads) {
  NativePoolOptions options;
  options.env_count = kEnvs;
  options.thread_count = threads;
  options.seed = 1;
  const auto pool = NativePool::open(registry(), id, {}, options).value();
  Actions actions(pool->spec(), kEnvs);
  REVERIE_CHECK(pool->reset(0, std::nullopt).ok());
  REVERIE_CHECK(pool->wait(0, TimePoint::max()).ok());
  for (auto _ : state) {
    REVERIE_CHECK(pool->step(0, actions.next()).ok());
    REVERIE_CHECK(pool->wait(0, TimePoint::max()).ok());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kEnvs));
}
BENCHMARK_CAPTURE(BM_PoolStep, cart_pole, "CartPole-v1", 0);
BENCHMARK_CAPTURE(BM_PoolStep, acrobot, "Acrobot-v1", 0);
BENCHMARK_CAPTURE(BM_PoolStep, mountain_car, "MountainCar-v0", 0);
BENCHMARK_CAPTURE(BM_PoolStep, mountain_car_continuous, "MountainCarContinuous-v0", 0);
BENCHMARK_CAPTURE(BM_PoolStep, pendulum, "Pendulum-v1", 0);
BENCHMARK_CAPTURE(BM_PoolStep, lunar_lander, "LunarLander-v3", 0);
BENCHMARK_CAPTURE(BM_PoolStep, lunar_lander_on_2, "LunarLander-v3", 2)->UseRealTime();

// The bounds for two threads: each loops over 32 separate environments. Either neither waits for
// the other, or they meet after each step, since the step of a batch ends with its last row.
void BM_RawLoops(benchmark::State& state, const std::string& id, bool they_meet) {
  constexpr std::size_t kThreads = 2;
  constexpr std::size_t kSteps = 100;
  std::vector<std::unique_ptr<NativePool>> pools;
  for (std::size_t t = 0; t < kThreads; ++t) {
    NativePoolOptions options;
    options.env_count = kEnvs / kThreads;
    options.thread_count = 0;
    options.seed = t;
    pools.push_back(NativePool::open(registry(), id, {}, options).value());
    REVERIE_CHECK(pools.back()->reset(0, std::nullopt).ok());
    REVERIE_CHECK(pools.back()->wait(0, TimePoint::max()).ok());
  }
  std::barrier meeting(kThreads);
  for (auto _ : state) {
    std::vector<std::thread> threads;
    for (const auto& pool : pools) {
      threads.emplace_back([&pool, &meeting, they_meet] {
        Actions actions(pool->spec(), pool->env_count());
        for (std::size_t step = 0; step < kSteps; ++step) {
          REVERIE_CHECK(pool->step(0, actions.next()).ok());
          REVERIE_CHECK(pool->wait(0, TimePoint::max()).ok());
          if (they_meet) meeting.arrive_and_wait();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(kEnvs * kSteps));
}
BENCHMARK_CAPTURE(BM_RawLoops, lunar_lander, "LunarLander-v3", false)->UseRealTime();
BENCHMARK_CAPTURE(BM_RawLoops, lunar_lander_meeting, "LunarLander-v3", true)->UseRealTime();

}  // namespace
}  // namespace reverie
