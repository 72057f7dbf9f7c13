#include "reverie/learn/parameter_server.h"

#include <array>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/nn/adam.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

// An agent with weights of one layer, from which a step subtracts the gradient. Its second network
// holds the number of the last step that is a multiple of `every`.
class SumAgent final : public Agent {
 public:
  explicit SumAgent(std::uint64_t every = 1)
      : every_(every),
        mlp_(nn::Mlp::make({.widths = {3, 16}}).value()),
        first_(mlp_.make_parameters()),
        second_(mlp_.make_parameters()) {}

  const AgentSpec& spec() const override { return spec_; }
  const nn::Mlp& policy_network() const override { return mlp_; }
  std::unique_ptr<Policy> make_policy(std::size_t) const override { return nullptr; }
  std::unique_ptr<Learner> make_learner(std::size_t) const override { return nullptr; }
  Gradients make_gradients(std::size_t) const override {
    Gradients gradients;
    gradients.networks.push_back(mlp_.make_parameters());
    gradients.is_present = {1};
    return gradients;
  }
  Gradients gradient_of(float value) const {
    Gradients gradients = make_gradients(1);
    gradients.networks[0].fill(value);
    return gradients;
  }
  WeightsView weights() const override {
    if (every_ == 1) return {networks_, version_};
    return {networks_, version_, changed_};
  }
  Status begin_step(const Gradients& gradients, std::span<const double> square_sums, double,
                    double scale) override {
    REVERIE_RETURN_IF_ERROR(
        nn::gradient_norm(mlp_, gradients.networks[0], square_sums[0]).status());
    scale_ = static_cast<float>(scale);
    changed_[0] = ++version_;
    if (version_ % every_ == 0) changed_[1] = version_;
    return {};
  }
  void step_part(const Gradients& gradients, nn::Part part) override {
    const auto [begin, end] = part.of(first_.float_count());
    for (std::size_t i = begin; i < end; ++i) {
      first_.data()[i] -= scale_ * gradients.networks[0].data()[i];
      if (version_ % every_ == 0) second_.data()[i] = static_cast<float>(version_);
    }
  }
  float weight() const { return first_.data()[0]; }

 private:
  const std::uint64_t every_;
  AgentSpec spec_;
  nn::Mlp mlp_;
  nn::Parameters first_;
  nn::Parameters second_;
  std::array<const nn::Parameters*, 2> networks_{&first_, &second_};
  std::uint64_t version_ = 0;
  float scale_ = 1;
  std::array<std::uint64_t, 2> changed_{};
};

TEST(ParameterServer, ARoundMakesOneStepWithTheMeanGradient) {
  SumAgent agent;
  ParameterServer server(agent, {.learner_count = 3});
  std::vector<std::thread> learners;
  for (std::size_t i = 0; i < 3; ++i) {
    learners.emplace_back([&, i] {
      for (int round = 0; round < 50; ++round) {
        const WeightsView weights = server.weights(i);
        EXPECT_EQ(weights.version, static_cast<std::uint64_t>(round));
        Gradients gradients = agent.gradient_of(static_cast<float>(i) * 3.0f);
        EXPECT_TRUE(server.submit(i, gradients, weights.version, 0).ok());
      }
    });
  }
  for (std::thread& learner : learners) learner.join();
  for (const float weight : agent.weights().networks[0]->span()) {
    EXPECT_FLOAT_EQ(weight, -150.0f);  // 50 rounds of (0 + 3 + 6) / 3
  }
  EXPECT_EQ(server.counts().steps, 50u);
  EXPECT_EQ(server.policy(0).version, 50u);
}

TEST(ParameterServer, AGradientThatIsTooStaleIsDropped) {
  SumAgent agent;
  ParameterServer server(agent, {.learner_count = 2, .asynchronous = true, .staleness_max = 1});
  Gradients gradients = agent.gradient_of(1);
  const std::uint64_t old = server.weights(1).version;
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(*server.submit(0, gradients, server.weights(0).version, 0));
    EXPECT_EQ(*server.submit(1, gradients, old, 0), i == 0);
  }
  const ParameterServer::Counts counts = server.counts();
  EXPECT_EQ(counts.steps, 3u);
  EXPECT_EQ(counts.dropped, 1u);
  EXPECT_EQ(counts.staleness_max, 1u);
  EXPECT_DOUBLE_EQ(counts.staleness_mean, 1.0 / 3.0);
}

TEST(ParameterServer, AStaleStepIsShortenedIfRequested) {
  SumAgent agent;
  ParameterServer server(agent,
                         {.learner_count = 1, .asynchronous = true, .shrink_stale_steps = true});
  Gradients gradients = agent.gradient_of(1);
  EXPECT_TRUE(*server.submit(0, gradients, 0, 0));
  EXPECT_TRUE(*server.submit(0, gradients, 0, 0));
  EXPECT_FLOAT_EQ(agent.weight(), -1.5f);
}

void check_versions(std::uint64_t every) {
  SumAgent agent(every);
  ParameterServer server(agent, {.learner_count = 2, .asynchronous = true, .staleness_max = 4000});
  std::vector<std::thread> learners;
  for (std::size_t i = 0; i < 2; ++i) {
    learners.emplace_back([&, i] {
      Gradients gradients = agent.gradient_of(1);
      for (int step = 0; step < 2'000; ++step) {
        const WeightsView weights = server.weights(i);
        const auto version = static_cast<float>(weights.version);
        ASSERT_EQ(weights.networks[1]->data()[0],
                  static_cast<float>(weights.version / every * every));
        ASSERT_EQ(weights.networks[0]->data()[0], -version);
        ASSERT_TRUE(server.submit(i, gradients, weights.version, 0).ok());
      }
    });
  }
  for (std::thread& learner : learners) learner.join();
  EXPECT_EQ(agent.weights().version, 4'000u);
}

TEST(ParameterServer, AnAsynchronousLearnerNeverSeesNetworksOfTwoVersions) {
  check_versions(1);
}

// The second network changes rarely, like a target network, and is not copied for every version.
TEST(ParameterServer, ALearnerNeverSeesAnOldVersionOfARarelyChangedNetwork) {
  check_versions(3);
}

TEST(ParameterServer, ANanEndsTheRoundForEveryLearnerAndChangesNothing) {
  SumAgent agent;
  ParameterServer server(agent, {.learner_count = 2});
  std::vector<std::thread> learners;
  for (std::size_t i = 0; i < 2; ++i) {
    learners.emplace_back([&, i] {
      Gradients gradients =
          agent.gradient_of(i == 0 ? 1.0f : std::numeric_limits<float>::quiet_NaN());
      expect_refused(server.submit(i, gradients, 0, 0).status(), StatusCode::kInvalidArgument,
                     {"layer 0"});
    });
  }
  for (std::thread& learner : learners) learner.join();
  EXPECT_EQ(agent.weight(), 0.0f);
}

TEST(ParameterServer, StopWakesALearnerThatWaitsForTheOthers) {
  SumAgent agent;
  ParameterServer server(agent, {.learner_count = 2});
  std::thread learner([&] {
    Gradients gradients = agent.gradient_of(1);
    EXPECT_EQ(server.submit(0, gradients, 0, 0).status().code(), StatusCode::kCancelled);
  });
  server.stop();
  learner.join();
  EXPECT_EQ(agent.weights().version, 0u);
}

}  // namespace
}  // namespace reverie
