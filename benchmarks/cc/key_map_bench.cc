// The key map and std::unordered_map: looking up a batch of 256 keys, and replacing a key in a full
// table, one key in and the oldest out. Args: keys. Keys are random, as Reverb's clients make them.
//
// Estimate at 10^6 keys: 22 MB, so the key's line and the value's come from L3 or DRAM; prefetched
// in batches 15 ns per look-up, single 60 ns; std::unordered_map follows two more pointers.
#include "reverie/sum_tree/key_map.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

constexpr std::size_t kBatch = 256;

struct Ours {
  void insert(std::uint64_t key, Slot value) { map.insert(key, value); }
  void erase(std::uint64_t key) { map.erase(key); }
  void find(const std::vector<std::uint64_t>& keys, std::vector<Slot>& values) const {
    map.find(keys, values);
  }
  double bytes_per_key() const {
    return static_cast<double>(map.memory_bytes()) / static_cast<double>(map.size());
  }
  KeyMap map;
};

struct Standard {
  void insert(std::uint64_t key, Slot value) { map.emplace(key, value); }
  void erase(std::uint64_t key) { map.erase(key); }
  void find(const std::vector<std::uint64_t>& keys, std::vector<Slot>& values) const {
    for (std::size_t i = 0; i < keys.size(); ++i) {
      const auto found = map.find(keys[i]);
      values[i] = found == map.end() ? kNoSlot : found->second;
    }
  }
  // A node with key, value and link, its malloc header, and the bucket.
  double bytes_per_key() const {
    return 32.0 + 8.0 * static_cast<double>(map.bucket_count()) / static_cast<double>(map.size());
  }
  std::unordered_map<std::uint64_t, Slot> map;
};

// The n-th key that is inserted.
std::uint64_t key_of(std::uint64_t n) {
  return mix64(n);
}

template <typename Map>
std::unique_ptr<Map> filled(std::int64_t count) {
  auto map = std::make_unique<Map>();
  for (std::int64_t i = 0; i < count; ++i) {
    map->insert(key_of(static_cast<std::uint64_t>(i)), static_cast<Slot>(i));
  }
  return map;
}

void tell_per_key(benchmark::State& state, double count, double bytes) {
  state.counters["key_s"] = benchmark::Counter(
      count, benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
  state.counters["bytes"] = bytes;
}

template <typename Map>
void BM_FindBatch(benchmark::State& state) {
  const auto map = filled<Map>(state.range(0));
  Random random(std::uint64_t{3});
  std::vector<std::uint64_t> keys(kBatch);
  std::vector<Slot> values(kBatch);
  for (auto _ : state) {
    for (auto& key : keys) key = key_of(random.below(static_cast<std::uint64_t>(state.range(0))));
    map->find(keys, values);
    benchmark::DoNotOptimize(values.data());
  }
  tell_per_key(state, kBatch, map->bytes_per_key());
}

template <typename Map>
void BM_Turnover(benchmark::State& state) {
  const auto map = filled<Map>(state.range(0));
  std::uint64_t oldest = 0;
  auto newest = static_cast<std::uint64_t>(state.range(0));
  for (auto _ : state) {
    map->insert(key_of(newest++), 1);
    map->erase(key_of(oldest++));
  }
  tell_per_key(state, 1, map->bytes_per_key());
}

BENCHMARK_TEMPLATE(BM_FindBatch, Ours)
    ->RangeMultiplier(100)
    ->Range(1'000, 10'000'000)
    ->MinTime(0.1);
BENCHMARK_TEMPLATE(BM_FindBatch, Standard)
    ->RangeMultiplier(100)
    ->Range(1'000, 10'000'000)
    ->MinTime(0.1);
BENCHMARK_TEMPLATE(BM_Turnover, Ours)->RangeMultiplier(100)->Range(1'000, 10'000'000)->MinTime(0.1);
BENCHMARK_TEMPLATE(BM_Turnover, Standard)
    ->RangeMultiplier(100)
    ->Range(1'000, 10'000'000)
    ->MinTime(0.1);

}  // namespace
}  // namespace reverie
