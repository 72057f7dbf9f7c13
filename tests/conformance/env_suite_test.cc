// The suite for every built-in native environment, with each of its options.
#include "tests/conformance/env_suite.h"

namespace reverie {
namespace {

INSTANTIATE_TEST_SUITE_P(CartPole, EnvSuite,
                         ::testing::Values(EnvCase{"CartPole-v1", {}},
                                           EnvCase{"CartPole-v1",
                                                   {{"sutton_barto_reward", true}}}));
INSTANTIATE_TEST_SUITE_P(Acrobot, EnvSuite, ::testing::Values(EnvCase{"Acrobot-v1", {}}));
INSTANTIATE_TEST_SUITE_P(MountainCar, EnvSuite,
                         ::testing::Values(EnvCase{"MountainCar-v0", {}},
                                           EnvCase{"MountainCar-v0", {{"goal_velocity", 0.02}}},
                                           EnvCase{"MountainCarContinuous-v0", {}}));
INSTANTIATE_TEST_SUITE_P(Pendulum, EnvSuite,
                         ::testing::Values(EnvCase{"Pendulum-v1", {}},
                                           EnvCase{"Pendulum-v1", {{"g", 9.81}}}));
// Box2D keeps state between steps that it does not expose.
INSTANTIATE_TEST_SUITE_P(
    LunarLander, EnvSuite,
    ::testing::Values(EnvCase{"LunarLander-v3", {}, false},
                      EnvCase{"LunarLander-v3", {{"continuous", true}}, false},
                      EnvCase{"LunarLanderContinuous-v3", {{"gravity", -5.0}}, false},
                      EnvCase{
                          "LunarLander-v3", {{"enable_wind", true}, {"wind_power", 20.0}}, false}));

}  // namespace
}  // namespace reverie
