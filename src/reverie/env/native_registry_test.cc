#include "reverie/env/native_registry.h"

#include <gtest/gtest.h>

#include "reverie/env/native/classic_control.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

class NativeRegistryTest : public ::testing::Test {
 protected:
  NativeRegistryTest() { EXPECT_TRUE(add_classic_control(registry_).ok()); }
  NativeRegistry registry_;
};

TEST_F(NativeRegistryTest, AMisspeltNameSuggestsSimilarNames) {
  for (const std::string_view id : {"CartPole", "cartpole-v1", "CartPole-v2", "Cartpol-v1"}) {
    const Status status = registry_.make(id, {}, 1).status();
    expect_refused(status, StatusCode::kNotFound, {std::string(id), "near it are: CartPole-v1"});
  }
  expect_refused(registry_.make("MountainCar-v1", {}, 1).status(), StatusCode::kNotFound,
                 {"near it are: MountainCar-v0"});
}

TEST_F(NativeRegistryTest, ANameUnlikeAnyOtherListsAllNames) {
  expect_refused(registry_.make("Tetris", {}, 1).status(), StatusCode::kNotFound,
                 {"there are: Acrobot-v1, CartPole-v1, MountainCar-v0"});
  expect_refused(NativeRegistry().make("", {}, 1).status(), StatusCode::kNotFound,
                 {"there are: none"});
}

TEST_F(NativeRegistryTest, ADuplicateNameIsRefused) {
  expect_refused(add_classic_control(registry_), StatusCode::kAlreadyExists, {"'CartPole-v1'"});
}

TEST_F(NativeRegistryTest, RefusedOptionsNameTheEnvironment) {
  expect_refused(registry_.make("Pendulum-v1", {{"gravity", 9.8}}, 1).status(),
                 StatusCode::kInvalidArgument, {"Pendulum-v1", "'gravity'", "known are: g"});
  expect_refused(registry_.make("Pendulum-v1", {{"g", true}}, 1).status(),
                 StatusCode::kInvalidArgument, {"'g' must be a number"});
  expect_refused(registry_.make("CartPole-v1", {{"sutton_barto_reward", 1.0}}, 1).status(),
                 StatusCode::kInvalidArgument, {"'sutton_barto_reward' must be true or false"});
}

}  // namespace
}  // namespace reverie
