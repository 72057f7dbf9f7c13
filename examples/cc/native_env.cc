// Environments without Python: 64 poles, balanced by a linear rule that is found by random search.
//
// The rule pushes right when w . observation > 0. Each of 64 environments tries its own weights,
// and the next guesses are centred on those whose pole stood longest.
//
// Source: the cross-entropy method, Rubinstein 1999; Szita & Lorincz 2006 for its use on control.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <numeric>
#include <span>
#include <vector>

#include "reverie/env/native/classic_control.h"
#include "reverie/env/native_pool.h"

namespace {

using namespace reverie;

constexpr std::size_t kEnvs = 64;
constexpr std::size_t kBest = 8;
constexpr std::size_t kInputs = 4;

using Weights = std::array<double, kInputs>;

// An approximately normal draw: the sum of twelve uniform ones.
double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

// How long the pole of each environment stands, at most 500 steps.
Status measure(NativePool& pool, std::span<const Weights> weights, std::span<int> steps) {
  REVERIE_RETURN_IF_ERROR(pool.reset(0, std::nullopt));
  REVERIE_RETURN_IF_ERROR(pool.wait(0, TimePoint::max()));
  const NativeRows& rows = pool.arrays(0)->rows;
  const auto* observations = reinterpret_cast<const float*>(rows.observation);
  std::array<std::int64_t, kEnvs> actions;
  std::array<bool, kEnvs> is_over{};
  std::fill(steps.begin(), steps.end(), 0);
  while (!std::all_of(is_over.begin(), is_over.end(), [](bool over) { return over; })) {
    for (std::size_t i = 0; i < kEnvs; ++i) {
      double sum = 0;
      for (std::size_t k = 0; k < kInputs; ++k) {
        sum += weights[i][k] * static_cast<double>(observations[i * kInputs + k]);
      }
      actions[i] = sum > 0 ? 1 : 0;
    }
    REVERIE_RETURN_IF_ERROR(pool.step(0, std::as_bytes(std::span(actions))));
    REVERIE_RETURN_IF_ERROR(pool.wait(0, TimePoint::max()));
    for (std::size_t i = 0; i < kEnvs; ++i) {
      if (is_over[i]) continue;
      ++steps[i];
      is_over[i] = rows.terminated[i] || rows.truncated[i];
    }
  }
  return {};
}

Status run() {
  NativeRegistry registry;
  REVERIE_RETURN_IF_ERROR(add_classic_control(registry));
  NativePoolOptions options;
  options.env_count = kEnvs;
  options.seed = 1;
  REVERIE_ASSIGN_OR_RETURN(const auto pool, NativePool::open(registry, "CartPole-v1", {}, options));

  Random random(std::uint64_t{2});
  Weights centre{};
  double width = 1;
  std::vector<Weights> weights(kEnvs);
  std::array<int, kEnvs> steps{};
  for (int round = 1; round <= 30; ++round) {
    for (Weights& guess : weights) {
      for (std::size_t k = 0; k < kInputs; ++k) guess[k] = centre[k] + width * normal(random);
    }
    REVERIE_RETURN_IF_ERROR(measure(*pool, weights, steps));
    std::array<std::size_t, kEnvs> order;
    std::iota(order.begin(), order.end(), 0);
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return steps[a] > steps[b]; });
    centre = {};
    for (std::size_t i = 0; i < kBest; ++i) {
      for (std::size_t k = 0; k < kInputs; ++k) centre[k] += weights[order[i]][k] / kBest;
    }
    width *= 0.9;
    const double mean = std::accumulate(steps.begin(), steps.end(), 0.0) / kEnvs;
    std::printf("round %2d: poles stand for %5.1f steps\n", round, mean);
    if (mean > 490) return {};
  }
  return internal_error("30 rounds were not enough");
}

}  // namespace

int main() {
  const Status status = run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
