// What every native environment must do. An environment joins with one line, its name and options:
//
//     INSTANTIATE_TEST_SUITE_P(CartPole, EnvSuite, ::testing::Values(EnvCase{"CartPole-v1", {}}));
#pragma once

#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/env/native/box2d.h"
#include "reverie/env/native/classic_control.h"
#include "reverie/env/native_pool.h"
#include "tests/scale.h"
#include "tests/support/refusal.h"

namespace reverie {

struct EnvCase {
  std::string id;
  Options options;
  bool is_state_whole = true;  // whether a restored state continues exactly as the original
};

class EnvSuite : public ::testing::TestWithParam<EnvCase> {
 protected:
  static constexpr std::size_t kEnvs = 7;

  // A pool of the case, with a record of all its outputs for comparison.
  struct Run {
    explicit Run(std::size_t threads, std::uint64_t seed = 1, std::size_t envs = kEnvs) {
      NativePoolOptions options;
      options.env_count = envs;
      options.thread_count = threads;
      options.seed = seed;
      auto made = NativePool::open(registry(), GetParam().id, GetParam().options, options);
      EXPECT_TRUE(made.ok()) << made.status().to_string();
      pool = std::move(made).value();
    }

    const NativeSpec& spec() const { return pool->spec(); }
    const NativeRows& rows() const { return pool->arrays(0)->rows; }
    std::size_t width() const {
      return static_cast<std::size_t>(element_count(spec().observation.shape));
    }
    std::span<const float> observation(std::size_t env) const {
      return {reinterpret_cast<const float*>(rows().observation) + env * width(), width()};
    }
    std::span<const float> final_observation(std::size_t env) const {
      return {reinterpret_cast<const float*>(rows().final_observation) + env * width(), width()};
    }
    bool ended(std::size_t env) const { return rows().terminated[env] || rows().truncated[env]; }

    void reset(std::optional<std::uint64_t> seed = std::nullopt) {
      ASSERT_TRUE(pool->reset(0, seed).ok());
      take();
    }
    // Steps with random actions from the whole range; equal generators give equal actions.
    void step(Random& random) {
      const std::size_t count = pool->env_count();
      std::vector<std::byte> actions;
      const auto add = [&](const auto& value) {
        const auto* bytes = reinterpret_cast<const std::byte*>(&value);
        actions.insert(actions.end(), bytes, bytes + sizeof(value));
      };
      for (std::size_t i = 0; i < count; ++i) {
        if (spec().action_count > 0) {
          add(static_cast<std::int64_t>(
              random.below(static_cast<std::uint64_t>(spec().action_count))));
          continue;
        }
        for (std::size_t j = 0; j < spec().action_low.size(); ++j) {
          const auto share = static_cast<float>(1.2 * random.uniform() - 0.1);  // also out of range
          add(spec().action_low[j] + share * (spec().action_high[j] - spec().action_low[j]));
        }
      }
      const Status status = pool->step(0, actions);
      ASSERT_TRUE(status.ok()) << status.to_string();
      take();
    }
    void take() { ASSERT_TRUE(pool->wait(0, TimePoint::max()).ok()); }

    std::unique_ptr<NativePool> pool;
  };

  static const NativeRegistry& registry() {
    static const NativeRegistry* const made = [] {
      auto* registry = new NativeRegistry;
      EXPECT_TRUE(add_classic_control(*registry).ok());
      EXPECT_TRUE(add_box2d_environments(*registry).ok());
      return registry;
    }();
    return *made;
  }

  static std::vector<float> copy(std::span<const float> values) {
    return {values.begin(), values.end()};
  }
  static void expect_same(const Run& a, const Run& b, int step) {
    for (std::size_t i = 0; i < a.pool->env_count(); ++i) {
      ASSERT_EQ(copy(a.observation(i)), copy(b.observation(i))) << "step " << step;
      ASSERT_EQ(a.rows().reward[i], b.rows().reward[i]) << "step " << step;
      ASSERT_EQ(a.rows().terminated[i], b.rows().terminated[i]) << "step " << step;
      ASSERT_EQ(a.rows().truncated[i], b.rows().truncated[i]) << "step " << step;
    }
  }
};

TEST_P(EnvSuite, TheSpecificationIsComplete) {
  const Run run(0);
  const NativeSpec& spec = run.spec();
  EXPECT_EQ(spec.id, GetParam().id);
  EXPECT_EQ(spec.observation.name, "");
  for (const std::int64_t extent : spec.observation.shape) EXPECT_GT(extent, 0);
  EXPECT_TRUE(spec.observation_low.empty() || spec.observation_low.size() == run.width());
  EXPECT_EQ(spec.observation_low.size(), spec.observation_high.size());
  if (spec.action_count > 0) {
    EXPECT_TRUE(spec.action_shape.empty());
    EXPECT_TRUE(spec.action_low.empty());
  } else {
    const auto count = static_cast<std::size_t>(element_count(spec.action_shape));
    ASSERT_EQ(spec.action_low.size(), count);
    ASSERT_EQ(spec.action_high.size(), count);
    for (std::size_t i = 0; i < count; ++i) EXPECT_LT(spec.action_low[i], spec.action_high[i]);
  }
  EXPECT_GE(spec.max_episode_steps, 0);
}

TEST_P(EnvSuite, AnUnknownOptionIsRefused) {
  Options options = GetParam().options;
  options["no_such_option"] = 1.0;
  expect_refused(registry().make(GetParam().id, options, 1).status(), StatusCode::kInvalidArgument,
                 {GetParam().id, "no_such_option"});
}

TEST_P(EnvSuite, TheSameSeedGivesTheSameRun) {
  Run a(0, 5);
  Run b(0, 5);
  a.reset();
  b.reset();
  expect_same(a, b, -1);
  Random random_a(std::uint64_t{2});
  Random random_b(std::uint64_t{2});
  for (int step = 0; step < scaled(600, 5'000); ++step) {
    a.step(random_a);
    b.step(random_b);
    expect_same(a, b, step);
  }
}

TEST_P(EnvSuite, TheThreadCountDoesNotChangeTheResults) {
  Run a(0, 5);
  Run b(3, 5);
  a.reset();
  b.reset();
  Random random_a(std::uint64_t{2});
  Random random_b(std::uint64_t{2});
  for (int step = 0; step < 300; ++step) {
    a.step(random_a);
    b.step(random_b);
    expect_same(a, b, step);
  }
}

TEST_P(EnvSuite, AResetWithASeedMatchesAPoolOfThatSeed) {
  Run a(0, 40);
  Run b(0, 99);
  Random random_a(std::uint64_t{2});
  Random random_b(std::uint64_t{2});
  b.reset();
  for (int step = 0; step < 50; ++step) b.step(random_b);
  random_b = Random(std::uint64_t{2});
  a.reset();
  b.reset(40);
  expect_same(a, b, -1);
  for (int step = 0; step < 200; ++step) {
    a.step(random_a);
    b.step(random_b);
    expect_same(a, b, step);
  }
}

TEST_P(EnvSuite, EnvironmentsAndEpisodesDiffer) {
  Run run(0);
  run.reset();
  const std::vector<float> first = copy(run.observation(0));
  EXPECT_NE(first, copy(run.observation(1)));
  run.reset();
  EXPECT_NE(first, copy(run.observation(0)));
}

TEST_P(EnvSuite, EpisodesEndAndTheNextStartsInTheSameStep) {
  Run run(0);
  run.reset();
  std::vector<std::int64_t> steps(kEnvs, 0);
  int ends = 0;
  Random random(std::uint64_t{2});
  for (int step = 0; step < scaled(2'100, 20'000); ++step) {
    std::vector<std::vector<float>> before;
    for (std::size_t i = 0; i < kEnvs; ++i) before.push_back(copy(run.final_observation(i)));
    run.step(random);
    for (std::size_t i = 0; i < kEnvs; ++i) {
      ++steps[i];
      ASSERT_EQ(run.rows().truncated[i], steps[i] == run.spec().max_episode_steps);
      if (run.ended(i)) {
        // The last observation of the old episode is kept beside the first of the new one.
        EXPECT_NE(copy(run.final_observation(i)), copy(run.observation(i)));
        ++ends;
        steps[i] = 0;
      } else {
        ASSERT_EQ(copy(run.final_observation(i)), before[i]) << "only ended rows are written";
      }
    }
  }
  EXPECT_GT(ends, 0);
}

TEST_P(EnvSuite, NumbersAreFiniteAndWithinTheirBounds) {
  Run run(0);
  run.reset();
  const NativeSpec& spec = run.spec();
  Random random(std::uint64_t{9});
  for (int step = 0; step < scaled(2'000, 50'000); ++step) {
    run.step(random);
    for (std::size_t i = 0; i < kEnvs; ++i) {
      ASSERT_TRUE(std::isfinite(run.rows().reward[i]));
      for (const auto values : {run.observation(i), run.final_observation(i)}) {
        for (std::size_t e = 0; e < values.size(); ++e) {
          ASSERT_TRUE(std::isfinite(values[e])) << "element " << e << " at step " << step;
          if (spec.observation_low.empty()) continue;
          ASSERT_GE(values[e], spec.observation_low[e]) << "element " << e;
          ASSERT_LE(values[e], spec.observation_high[e]) << "element " << e;
        }
      }
    }
  }
}

TEST_P(EnvSuite, ActionsOutOfRangeAreRefusedOrHarmless) {
  Run run(0);
  run.reset();
  if (run.spec().action_count > 0) {
    const std::vector<float> before = copy(run.observation(kEnvs - 1));
    for (const std::int64_t wrong : {run.spec().action_count, std::int64_t{-1}}) {
      const std::vector<std::int64_t> actions(kEnvs, wrong);
      expect_refused(run.pool->step(0, std::as_bytes(std::span(actions))),
                     StatusCode::kInvalidArgument, {"environment 0", GetParam().id});
    }
    EXPECT_EQ(copy(run.observation(kEnvs - 1)), before);
    return;
  }
  const std::size_t elements = run.spec().action_low.size();
  for (const float extreme : {3e38f, -3e38f, 1e-38f}) {
    const std::vector<float> actions(kEnvs * elements, extreme);
    ASSERT_TRUE(run.pool->step(0, std::as_bytes(std::span(actions))).ok());
    run.take();
    for (std::size_t i = 0; i < kEnvs; ++i) {
      for (const float value : run.observation(i)) ASSERT_TRUE(std::isfinite(value));
    }
  }
}

TEST_P(EnvSuite, AStateCanBeSavedAndRestored) {
  Run a(0, 1);
  Run b(0, 2);
  a.reset();
  b.reset();
  Random random(std::uint64_t{3});
  for (int step = 0; step < 20; ++step) a.step(random);
  for (std::size_t i = 0; i < kEnvs; ++i) {
    const auto state = a.pool->get_state(0, i);
    ASSERT_TRUE(state.ok()) << state.status().to_string();
    ASSERT_TRUE(b.pool->set_state(0, i, *state).ok());
    EXPECT_EQ(*b.pool->get_state(0, i), *state);
    EXPECT_EQ(copy(b.observation(i)), copy(a.observation(i)));
  }
  if (!GetParam().is_state_whole) return;
  // Equal only until an episode ends: each pool draws new starts from its own generator.
  Random random_a(std::uint64_t{4});
  Random random_b(std::uint64_t{4});
  for (int step = 0; step < 100; ++step) {
    a.step(random_a);
    b.step(random_b);
    for (std::size_t i = 0; i < kEnvs; ++i) {
      ASSERT_EQ(a.rows().reward[i], b.rows().reward[i]);
      ASSERT_EQ(a.ended(i), b.ended(i));
      if (a.ended(i)) return;
      ASSERT_EQ(copy(a.observation(i)), copy(b.observation(i)));
    }
  }
}

TEST_P(EnvSuite, AnInvalidStateIsRefused) {
  Run run(0);
  run.reset();
  auto state = run.pool->get_state(0, 0).value();
  std::vector<double> longer = state;
  longer.push_back(0);
  expect_refused(run.pool->set_state(0, 0, longer), StatusCode::kInvalidArgument,
                 {GetParam().id, "get_state"});
  state[0] = std::nan("");
  expect_refused(run.pool->set_state(0, 0, state), StatusCode::kInvalidArgument, {"finite"});
  state[0] = 0;
  state.back() = -1;
  expect_refused(run.pool->set_state(0, 0, state), StatusCode::kInvalidArgument, {"steps"});
}

TEST_P(EnvSuite, TheRenderedImageShowsTheState) {
  Run run(0);
  run.reset();
  const auto pixels = [&](std::size_t env) {
    const Canvas canvas = run.pool->draw(0, env).value();
    EXPECT_EQ(canvas.width(), run.spec().picture_width);
    return std::vector<std::uint8_t>(canvas.rgb().begin(), canvas.rgb().end());
  };
  const auto first = pixels(0);
  EXPECT_EQ(first, pixels(0));
  Random random(std::uint64_t{3});
  for (int step = 0; step < 15; ++step) run.step(random);
  EXPECT_NE(first, pixels(0));
}

}  // namespace reverie
