// One learner's step: double DQN over a batch of 64, on one thread, and an actor's forward pass.
//
// One item is one gradient step: three forward passes (both networks at the next observation, the
// online one at the current observation), targets, Huber's derivative, backward, Adam. Networks are
// 8 - H - H - 4, where H is the argument: 256 is usual for LunarLander, 64 is a small network that
// fits in the first-level cache. The peer is the same arithmetic with Eigen 3.4, if libeigen3-dev
// is installed, compiled for this machine (-march=native); ours selects its kernels at run time.
//
// Estimate for H = 256: 43.7 million floating-point operations. With 32 per instruction pair and
// cycle (AVX-512, two units) at 4 GHz 170 us, with 16 (AVX2, one unit of Zen 1) at 2.6 GHz 1,050
// us. Adam also passes over 4 arrays of 68,600 floats; their roots and quotients take 5 to 60 us.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "reverie/base/random.h"
#include "reverie/nn/adam.h"
#include "reverie/nn/initializer.h"
#include "reverie/nn/mlp.h"
#include "reverie/rl/huber.h"
#include "reverie/rl/q_target.h"

#if defined(REVERIE_HAS_EIGEN)
#include "benchmarks/cc/peer_network.h"
#endif

namespace reverie {
namespace {

constexpr std::size_t kBatch = 64;
constexpr std::size_t kInputs = 8;
constexpr std::size_t kActions = 4;

struct Batch {
  explicit Batch(std::uint64_t seed) {
    Random random(seed);
    for (std::vector<float>* values : {&obs, &next_obs, &rewards}) {
      for (float& value : *values) value = static_cast<float>(2 * random.uniform() - 1);
    }
    for (std::size_t& action : actions) action = random.below(kActions);
  }

  std::vector<float> obs = std::vector<float>(kBatch * kInputs);
  std::vector<float> next_obs = std::vector<float>(kBatch * kInputs);
  std::vector<float> rewards = std::vector<float>(kBatch);
  std::vector<float> discounts = std::vector<float>(kBatch, 0.99f);
  std::vector<std::size_t> actions = std::vector<std::size_t>(kBatch);
};

nn::Mlp mlp_of(std::size_t hidden) {
  return nn::Mlp::make({{kInputs, hidden, hidden, kActions}}).value();
}

nn::Parameters drawn(const nn::Mlp& mlp, std::uint64_t seed) {
  nn::Parameters parameters = mlp.make_parameters();
  Random random(seed);
  nn::initialize_uniform(mlp, random, parameters);
  return parameters;
}

class Ours {
 public:
  explicit Ours(std::size_t hidden) : mlp_(mlp_of(hidden)) {}

  void step(const Batch& batch) {
    const nn::Matrix chosen = choice_.forward(online_, view(batch.next_obs));
    const nn::Matrix valued = value_.forward(target_, view(batch.next_obs));
    const nn::Matrix values = pass_.forward(online_, view(batch.obs));
    // Rows of four actions need no padding, so they are contiguous.
    double_q_targets(batch.rewards, batch.discounts, {chosen.data, kBatch * kActions},
                     {valued.data, kBatch * kActions}, targets_);
    for (std::size_t i = 0; i < kBatch; ++i) {
      errors_[i] = values(i, batch.actions[i]) - targets_[i];
    }
    REVERIE_CHECK(huber_derivatives(errors_, 1.0f, errors_).ok());
    const nn::Matrix gradient = pass_.output_gradient();
    for (std::size_t i = 0; i < kBatch; ++i) {
      for (std::size_t a = 0; a < kActions; ++a) gradient(i, a) = 0.0f;
      gradient(i, batch.actions[i]) = errors_[i] / kBatch;
    }
    pass_.backward(online_, gradient_);
    adam_.step(gradient_, 1.0f, online_);
  }

 private:
  static nn::ConstMatrix view(const std::vector<float>& rows) {
    return {rows.data(), kBatch, kInputs, kInputs};
  }

  nn::Mlp mlp_;
  nn::Parameters online_ = drawn(mlp_, 1);
  nn::Parameters target_ = drawn(mlp_, 2);
  nn::Parameters gradient_ = mlp_.make_parameters();
  nn::MlpPass choice_{mlp_, kBatch};
  nn::MlpPass value_{mlp_, kBatch};
  nn::MlpPass pass_{mlp_, kBatch};
  nn::Adam adam_ = nn::Adam::make(mlp_, {.learning_rate = 5e-4}).value();
  std::vector<float> targets_ = std::vector<float>(kBatch);
  std::vector<float> errors_ = std::vector<float>(kBatch);
};

void BM_GradientStep(benchmark::State& state) {
  const Batch batch(7);
  Ours learner(static_cast<std::size_t>(state.range(0)));
  for (auto _ : state) learner.step(batch);
  state.SetItemsProcessed(state.iterations());
  state.SetLabel(nn::kernels().name);
}
BENCHMARK(BM_GradientStep)->Arg(64)->Arg(256);

#if defined(REVERIE_HAS_EIGEN)
void BM_GradientStepEigen(benchmark::State& state) {
  const Batch batch(7);
  EigenLearner learner(static_cast<int>(state.range(0)));
  for (auto _ : state) {
    learner.step(batch.obs.data(), batch.next_obs.data(), batch.rewards.data(),
                 batch.discounts.data(), batch.actions.data());
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_GradientStepEigen)->Arg(64)->Arg(256);
#endif

// Args: rows, hidden width. One row is the case of a single actor. Items are rows.
void BM_Forward(benchmark::State& state) {
  const auto rows = static_cast<std::size_t>(state.range(0));
  const Batch batch(7);
  const nn::Mlp mlp = mlp_of(static_cast<std::size_t>(state.range(1)));
  const nn::Parameters parameters = drawn(mlp, 1);
  nn::MlpPass pass(mlp, rows);
  for (auto _ : state) {
    benchmark::DoNotOptimize(
        pass.forward(parameters, {batch.obs.data(), rows, kInputs, kInputs}).data);
  }
  state.SetItemsProcessed(state.iterations() * state.range(0));
}
BENCHMARK(BM_Forward)->ArgsProduct({{1, 64}, {64, 256}});

}  // namespace
}  // namespace reverie
