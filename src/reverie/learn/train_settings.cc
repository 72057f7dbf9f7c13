#include "reverie/learn/train_settings.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "reverie/base/format.h"
#include "reverie/transitions/replay_shards.h"

namespace reverie {
namespace {

// Larger than any useful value, and small enough that no product of two overflows.
constexpr std::uint64_t kCountMax = std::uint64_t{1} << 40;
constexpr double kInfinity = std::numeric_limits<double>::infinity();
// Bounds of what networks, optimisers and batches hold as floats: there it is neither 0 nor
// infinity, nor so small that it is flushed to 0 once it is multiplied by one of the others.
constexpr double kFloatLeast = 1e-30;
constexpr double kFloatMost = 1e30;

// How long it lasts and how it is judged, how far a gradient's step goes, and the noise of actions.
constexpr std::array<std::string_view, 11> kFreeAtResume = {
    "steps",
    "stop_at_return",
    "evaluation_interval",
    "evaluation_episodes",
    "learning_rate",
    "learning_rate_last_share",
    "policy_learning_rate",
    "adam_epsilon",
    "gradient_norm_max",
    "huber_delta",
    "noise_sigma",
};

// Keeps the first error.
class Checker {
 public:
  void count(const char* name, std::uint64_t value, std::uint64_t least,
             std::uint64_t most = kCountMax) {
    if (value >= least && value <= most) return;
    keep(invalid_argument("{} is {}; it must be an integer from {} to {}", name, value, least,
                          most));
  }
  // In [least, most]; NaN never is.
  void number(const char* name, double value, double least, double most) {
    if (value >= least && value <= most) return;
    keep(invalid_argument("{} is {}; it must be a number from {} to {}", name, value, least, most));
  }
  // One that is computed with as a float. `also` is allowed beside the bounds.
  void as_float(const char* name, double value, std::optional<double> also = {},
                double most = kFloatMost) {
    if (value >= kFloatLeast && value <= most) return;
    if (also && value == *also) return;
    keep(invalid_argument("{} is {}; it must be {}a number from {} to {}", name, value,
                          also ? format("{} or ", *also) : "", kFloatLeast, most));
  }
  void finite(const char* name, std::optional<double> value, double most) {
    if (!value || std::abs(*value) <= most) return;
    keep(
        invalid_argument("{} is {}; it must be a number from {} to {}", name, *value, -most, most));
  }
  void keep(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  Status status_;
};

std::string hidden_text(const std::vector<std::size_t>& hidden) {
  std::string text;
  for (const std::size_t width : hidden) {
    if (!text.empty()) text += ',';
    text += std::to_string(width);
  }
  return text;
}

Result<std::vector<std::size_t>> parse_hidden(std::string_view text) {
  std::vector<std::size_t> widths;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    std::size_t width = 0;
    const auto [next, error] = std::from_chars(at, end, width);
    if (error != std::errc() || (next != end && (*next != ',' || next + 1 == end))) {
      return invalid_argument("hidden is '{}'; it must be widths with commas between, as 256,256",
                              text);
    }
    widths.push_back(width);
    at = next == end ? end : next + 1;
  }
  return widths;
}

// One field from its option.
Status read_field(const char* name, const OptionValue& value, double& field) {
  if (const auto* number = std::get_if<double>(&value)) {
    field = *number;
  } else if (const auto* integer = std::get_if<std::int64_t>(&value)) {
    field = static_cast<double>(*integer);
  } else {
    return invalid_argument("{} must be a number", name);
  }
  return {};
}
Status read_field(const char* name, const OptionValue& value, std::uint64_t& field) {
  const auto* integer = std::get_if<std::int64_t>(&value);
  if (integer == nullptr) return invalid_argument("{} must be an integer", name);
  if (*integer < 0) return invalid_argument("{} is {}; it must be at least 0", name, *integer);
  field = static_cast<std::uint64_t>(*integer);
  return {};
}
Status read_field(const char* name, const OptionValue& value, bool& field) {
  const auto* flag = std::get_if<bool>(&value);
  if (flag == nullptr) return invalid_argument("{} must be true or false", name);
  field = *flag;
  return {};
}
Status read_field(const char* name, const OptionValue& value, std::vector<std::size_t>& field) {
  const auto* text = std::get_if<std::string>(&value);
  if (text == nullptr) return invalid_argument("{} must be text, as 256,256", name);
  REVERIE_ASSIGN_OR_RETURN(field, parse_hidden(*text));
  return {};
}
template <typename T>
Status read_field(const char* name, const OptionValue& value, std::optional<T>& field) {
  return read_field(name, value, field.emplace());
}

// How many letters must change; names are short.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j + 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

Status no_such_field(std::string_view name) {
  std::vector<std::pair<std::size_t, std::string>> near;
  const TrainSettings settings;
  visit_settings(settings, [&](const char* known, const auto&) {
    near.emplace_back(distance(name, known), known);
  });
  std::ranges::stable_sort(near, {}, &std::pair<std::size_t, std::string>::first);
  return invalid_argument("there is no setting '{}'; the nearest are: {}, {}, {}", name,
                          near[0].second, near[1].second, near[2].second);
}

}  // namespace

Status check_ranges(const TrainSettings& s) {
  Checker check;
  check.count("steps", s.steps, 1);
  check.count("actors", s.actors, 0, 1024);
  check.count("learners", s.learners, 1, 1024);
  check.count("envs_per_actor", s.envs_per_actor, 1, 1 << 16);
  check.number("update_interval", s.update_interval, 1e-3, 1e9);
  check.count("warmup_steps", s.warmup_steps, 0);
  check.count("lead_steps", s.lead_steps, 0);
  check.count("staleness_max", s.staleness_max, 0);
  check.count("return_window", s.return_window, 1);
  check.count("evaluation_interval", s.evaluation_interval, 0);
  check.count("evaluation_episodes", s.evaluation_episodes, 1, 1 << 16);
  check.finite("stop_at_return", s.stop_at_return, std::numeric_limits<double>::max());
  check.count("capacity", s.capacity, 1);
  check.count("replay_shards", s.replay_shards, 0, ReplayShards::kShardsMax);
  check.number("priority_exponent", s.priority_exponent, 0, 16);
  check.as_float("priority_epsilon", s.priority_epsilon);
  check.number("beta_first", s.beta_first, 0, 16);
  check.number("beta_last", s.beta_last, 0, 16);
  check.count("n_step", s.n_step, 1, 1024);
  check.number("gamma", s.gamma, 0, 1);
  check.count("batch_size", s.batch_size, 1, 1 << 20);
  check.as_float("reward_scale", s.reward_scale);
  check.as_float("learning_rate", s.learning_rate);
  check.number("learning_rate_last_share", s.learning_rate_last_share, 0, 1);
  check.as_float("adam_epsilon", s.adam_epsilon);
  check.as_float("gradient_norm_max", s.gradient_norm_max, 0.0);
  check.as_float("huber_delta", s.huber_delta, kInfinity);
  check.count("target_interval", s.target_interval, 1);
  check.as_float("tau", s.tau, 0.0, 1);
  check.number("epsilon_first", s.epsilon_first, 0, 1);
  check.number("epsilon_last", s.epsilon_last, 0, 1);
  check.number("epsilon_share", s.epsilon_share, 0, 1);
  check.as_float("policy_learning_rate", s.policy_learning_rate);
  check.count("policy_delay", s.policy_delay, 1);
  check.number("noise_sigma", s.noise_sigma, 0, 10);
  check.number("target_noise", s.target_noise, 0, 10);
  check.as_float("target_noise_max", s.target_noise_max);
  check.as_float("temperature", s.temperature, 0.0, 1e6);
  check.finite("target_entropy", s.target_entropy, kFloatMost);
  return check.status();
}

std::uint64_t warmup_least(const TrainSettings& s) {
  return (s.n_step + 1) * std::max<std::uint64_t>(s.actors, 1) * s.envs_per_actor;
}

Status check_settings(const TrainSettings& s) {
  REVERIE_RETURN_IF_ERROR(check_ranges(s));
  Checker check;
  // The first batch is drawn then.
  if (s.warmup_steps < warmup_least(s)) {
    check.keep(invalid_argument(
        "warmup_steps is {}; it must be at least (n_step + 1) * actors * envs_per_actor = {}",
        s.warmup_steps, warmup_least(s)));
  }
  if (s.replay_shards > s.capacity) {
    check.keep(invalid_argument("replay_shards is {}; it must be at most the capacity, {}",
                                s.replay_shards, s.capacity));
  }
  if (s.replay_shards > 1 && s.weights_over_buffer) {
    check.keep(invalid_argument(
        "replay_shards is {} but weights_over_buffer is true, which needs one shard; leave one of "
        "them out",
        s.replay_shards));
  }
  return check.status();
}

namespace {

// `defaults` with the fields that `options` name, not yet checked.
Result<TrainSettings> read_fields(const Options& options, TrainSettings defaults) {
  TrainSettings settings = std::move(defaults);
  std::set<std::string_view> known;
  Status status;
  visit_settings(settings, [&](const char* name, auto& field) {
    known.insert(name);
    const auto given = options.find(name);
    if (given == options.end() || !status.ok()) return;
    status = read_field(name, given->second, field);
  });
  for (const auto& [name, value] : options) {
    if (!known.contains(name)) return no_such_field(name);
  }
  REVERIE_RETURN_IF_ERROR(status);
  return settings;
}

}  // namespace

Result<TrainSettings> read_settings(const Options& options, TrainSettings defaults) {
  REVERIE_ASSIGN_OR_RETURN(TrainSettings settings, read_fields(options, std::move(defaults)));
  REVERIE_RETURN_IF_ERROR(check_settings(settings));
  return settings;
}

Status check_options(const Options& options) {
  REVERIE_ASSIGN_OR_RETURN(const TrainSettings settings, read_fields(options, {}));
  return check_ranges(settings);
}

std::span<const std::string_view> settings_free_at_resume() {
  return kFreeAtResume;
}

Options write_settings(const TrainSettings& settings) {
  Options options;
  visit_settings(settings, [&]<typename Field>(const char* name, const Field& field) {
    if constexpr (std::is_same_v<Field, std::uint64_t>) {
      options[name] = static_cast<std::int64_t>(field);
    } else if constexpr (std::is_same_v<Field, std::optional<std::uint64_t>>) {
      if (field) options[name] = static_cast<std::int64_t>(*field);
    } else if constexpr (std::is_same_v<Field, std::optional<double>>) {
      if (field) options[name] = *field;
    } else if constexpr (std::is_same_v<Field, std::vector<std::size_t>>) {
      options[name] = hidden_text(field);
    } else {
      options[name] = field;
    }
  });
  return options;
}

}  // namespace reverie
