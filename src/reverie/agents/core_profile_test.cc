#include "reverie/agents/core_profile.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie {
namespace {

// tests/integration/training_test.cc tests measured curves, which need a store.
TEST(CoreProfile, CountsAndTimesOutOfRangeAreRefused) {
  // The arguments are checked before the agent is used.
  struct NoAgent final : Agent {
    const AgentSpec& spec() const override { return empty; }
    const nn::Mlp& policy_network() const override { return *mlp; }
    std::unique_ptr<Policy> make_policy(std::size_t) const override { return nullptr; }
    std::unique_ptr<Learner> make_learner(std::size_t) const override { return nullptr; }
    Gradients make_gradients(std::size_t) const override { return {}; }
    WeightsView weights() const override { return {}; }
    Status begin_step(const Gradients&, std::span<const double>, double, double) override {
      return {};
    }
    void step_part(const Gradients&, nn::Part) override {}
    AgentSpec empty;
    const nn::Mlp* mlp = nullptr;
  } agent;
  CoreProfileOptions none;
  none.core_count = 0;
  expect_refused(profile_cores({}, agent, {}, none).status(), StatusCode::kInvalidArgument,
                 {"cores", "0", "1024"});
  CoreProfileOptions instant;
  instant.measure_s = 0;
  expect_refused(profile_cores({}, agent, {}, instant).status(), StatusCode::kInvalidArgument,
                 {"measure_s"});
}

}  // namespace
}  // namespace reverie
