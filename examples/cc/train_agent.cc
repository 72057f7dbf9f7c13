// A whole training without Python: actors and learners on threads balance a pole; the policy is
// saved as safetensors.
#include <cstdio>
#include <numeric>
#include <string>

#include "reverie/agents/algorithms.h"
#include "reverie/env/native/classic_control.h"
#include "reverie/nn/mlp_file.h"

namespace {

using namespace reverie;

Status run() {
  NativeRegistry environments;
  REVERIE_RETURN_IF_ERROR(add_classic_control(environments));
  const Options options{{"seed", std::int64_t{1}},
                        {"steps", std::int64_t{20'000}},
                        {"actors", std::int64_t{2}},
                        {"learning_rate", 1e-3},
                        {"learning_rate_last_share", 0.0},
                        {"hidden", std::string("64,64")},
                        {"n_step", std::int64_t{3}},
                        {"reward_scale", 0.1},
                        {"tau", 0.01},
                        {"epsilon_share", 0.5},
                        {"stop_at_return", 150.0}};
  REVERIE_ASSIGN_OR_RETURN(TrainPlan plan,
                           plan_training(environments, "ddqn", "CartPole-v1", {}, options));
  REVERIE_ASSIGN_OR_RETURN(const auto trainer, open_training(std::move(plan)));
  REVERIE_RETURN_IF_ERROR(trainer->start());
  while (!trainer->wait(Clock::system().now() + Duration(std::int64_t{1'000'000'000}))) {
    const TrainProgress now = trainer->progress();
    std::printf("%8zu steps, return %.0f\n", std::size_t{now.steps}, now.mean_return.value_or(0));
  }
  REVERIE_RETURN_IF_ERROR(trainer->status());

  const nn::Parameters policy = trainer->policy();
  REVERIE_ASSIGN_OR_RETURN(const auto returns, trainer->evaluate(policy, /*seed=*/2, {}));
  const double mean =
      std::accumulate(returns.begin(), returns.end(), 0.0) / static_cast<double>(returns.size());
  std::printf("%s; without exploration %.0f\n",
              std::string(train_end_name(trainer->progress().end)).c_str(), mean);
  if (mean < 60) return internal_error("a mean of {}; a random policy has 22", mean);
  return nn::save_mlp("cart_pole.safetensors", trainer->agent().policy_network(), policy);
}

}  // namespace

int main() {
  const Status status = run();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.to_string().c_str());
  return status.ok() ? 0 : 1;
}
