// TrainSettings: all settings of a training, with the defaults of widely used baselines where the
// papers leave a number out.
//
//     TrainSettings settings;
//     settings.steps = 50'000;
//     settings.hidden = {64, 64};
//     REVERIE_RETURN_IF_ERROR(check_settings(settings));
//
// Also by name, for command lines, files and Python: read_settings(), write_settings(). Not every
// algorithm uses every field; docs/algorithms/ has a page for each.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "reverie/base/options.h"
#include "reverie/base/status.h"

namespace reverie {

struct TrainSettings {
  // --- The run.
  // Seeds every generator of the training. Absent: drawn from the system, and reported by the
  // training.
  std::optional<std::uint64_t> seed;
  // Environment steps of all actors together.
  std::uint64_t steps = 100'000;
  // Threads that act. 0: the learner's thread acts too, in turn, and a seed reproduces the run.
  std::uint64_t actors = 0;
  // Threads that learn.
  std::uint64_t learners = 1;
  // Environments that an actor steps together.
  std::uint64_t envs_per_actor = 1;
  // Environment steps per batch that is learned from; below 1: more than one batch per step.
  double update_interval = 1;
  // Steps before the first batch.
  std::uint64_t warmup_steps = 1'000;
  // How far actors may be ahead of update_interval before they wait, in steps.
  std::uint64_t lead_steps = 256;
  // True: each learner's gradient is a separate step, on weights that may have changed meanwhile;
  // false: one step is taken with the mean of all learners' gradients.
  bool asynchronous = false;
  // Asynchronous: a gradient at weights that are more steps old than this is dropped.
  std::uint64_t staleness_max = 8;
  // Asynchronous: a gradient's step is divided by 1 + its staleness.
  bool shrink_stale_steps = false;
  // Ends the training once the mean return of the last return_window episodes is at least this.
  std::optional<double> stop_at_return;
  std::uint64_t return_window = 100;
  // Steps between two evaluations without exploration, apart from the training; 0: none. The best
  // policy is kept.
  std::uint64_t evaluation_interval = 0;
  std::uint64_t evaluation_episodes = 10;

  // --- Replay.
  std::uint64_t capacity = 100'000;  // transitions; the oldest leave first
  // Tables that the transitions are spread over, so that learners seldom wait for each other: a
  // batch is drawn from one of them. 0: enough for this number of learners, see
  // replay_shard_count().
  std::uint64_t replay_shards = 0;
  bool prioritized = true;
  double priority_exponent = 0.6;  // alpha
  double priority_epsilon = 1e-6;  // added to |TD error|
  double beta_first = 0.4;         // of the importance weights, linear over the steps
  double beta_last = 1.0;
  // Divides weights by the largest of the whole buffer, not of the batch.
  bool weights_over_buffer = false;
  std::uint64_t n_step = 1;
  double gamma = 0.99;
  std::uint64_t batch_size = 64;
  // Rewards are multiplied by this before learning; reported returns are not.
  double reward_scale = 1;

  // --- Networks and their optimiser.
  std::vector<std::size_t> hidden = {256, 256};
  double learning_rate = 5e-4;
  // The share of the learning rate that is left at the last step; it decays linearly.
  double learning_rate_last_share = 1;
  double adam_epsilon = 1e-8;
  // A longer gradient is scaled to this norm; 0: no limit.
  double gradient_norm_max = 10;
  // Beyond this error Huber's loss is linear; infinity: the squared loss.
  double huber_delta = 1;
  // Gradient steps between two copies into the target networks, unless tau is positive.
  std::uint64_t target_interval = 500;
  // The share of the way that target networks follow at each step; 0: copies every target_interval.
  double tau = 0;

  // --- Exploration with discrete actions: the share of random ones, linear in the steps.
  double epsilon_first = 1;
  double epsilon_last = 0.05;
  double epsilon_share = 0.1;  // of the steps until epsilon_last

  // --- Continuous actions, in units of half the environment's range.
  double policy_learning_rate = 1e-3;    // of the policy's Adam; the critics have learning_rate
  std::uint64_t policy_delay = 1;        // gradient steps per step of the policy
  double noise_sigma = 0.1;              // Gaussian, on actions while training; ddpg and td3
  double target_noise = 0;               // Gaussian, on the target policy's actions; td3
  double target_noise_max = 0.5;         // which is clipped to this
  double temperature = 0;                // sac; 0: learned, so that the entropy is target_entropy
  std::optional<double> target_entropy;  // absent: minus the action's width

  friend bool operator==(const TrainSettings&, const TrainSettings&) = default;
};

// Calls visit(name, field) for each field, in the order above.
template <typename Settings, typename Visit>
void visit_settings(Settings& s, Visit&& visit) {
  visit("seed", s.seed);
  visit("steps", s.steps);
  visit("actors", s.actors);
  visit("learners", s.learners);
  visit("envs_per_actor", s.envs_per_actor);
  visit("update_interval", s.update_interval);
  visit("warmup_steps", s.warmup_steps);
  visit("lead_steps", s.lead_steps);
  visit("asynchronous", s.asynchronous);
  visit("staleness_max", s.staleness_max);
  visit("shrink_stale_steps", s.shrink_stale_steps);
  visit("stop_at_return", s.stop_at_return);
  visit("return_window", s.return_window);
  visit("evaluation_interval", s.evaluation_interval);
  visit("evaluation_episodes", s.evaluation_episodes);
  visit("capacity", s.capacity);
  visit("replay_shards", s.replay_shards);
  visit("prioritized", s.prioritized);
  visit("priority_exponent", s.priority_exponent);
  visit("priority_epsilon", s.priority_epsilon);
  visit("beta_first", s.beta_first);
  visit("beta_last", s.beta_last);
  visit("weights_over_buffer", s.weights_over_buffer);
  visit("n_step", s.n_step);
  visit("gamma", s.gamma);
  visit("batch_size", s.batch_size);
  visit("reward_scale", s.reward_scale);
  visit("hidden", s.hidden);
  visit("learning_rate", s.learning_rate);
  visit("learning_rate_last_share", s.learning_rate_last_share);
  visit("adam_epsilon", s.adam_epsilon);
  visit("gradient_norm_max", s.gradient_norm_max);
  visit("huber_delta", s.huber_delta);
  visit("target_interval", s.target_interval);
  visit("tau", s.tau);
  visit("epsilon_first", s.epsilon_first);
  visit("epsilon_last", s.epsilon_last);
  visit("epsilon_share", s.epsilon_share);
  visit("policy_learning_rate", s.policy_learning_rate);
  visit("policy_delay", s.policy_delay);
  visit("noise_sigma", s.noise_sigma);
  visit("target_noise", s.target_noise);
  visit("target_noise_max", s.target_noise_max);
  visit("temperature", s.temperature);
  visit("target_entropy", s.target_entropy);
}

// Checks each field by itself. INVALID_ARGUMENT names the field, its value and the bound.
Status check_ranges(const TrainSettings& settings);
// The same, and the relations between fields.
Status check_settings(const TrainSettings& settings);
// The fewest steps after which some environment has a complete transition; warmup_steps is no less.
std::uint64_t warmup_least(const TrainSettings& settings);

// `defaults` with the fields that `options` name. `hidden` is text, "256,256". INVALID_ARGUMENT
// for an unknown field, with the most similar names, for another type, or from
// check_settings().
Result<TrainSettings> read_settings(const Options& options, TrainSettings defaults = {});
// Ok if each option is a setting in its range; does not check relations between fields.
Status check_options(const Options& options);
// The fields that a training which goes on from a checkpoint may have with another value: nothing
// that was saved depends on them.
std::span<const std::string_view> settings_free_at_resume();
// Every field that has a value; read_settings() gives the same settings back.
Options write_settings(const TrainSettings& settings);

}  // namespace reverie
