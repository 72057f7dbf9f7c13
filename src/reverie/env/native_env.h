// Native environments: what to write to add one, and how many of them are stepped together.
//
//     struct Coin {                                     // guess the coin, ten times
//       struct Config {};
//       using Observation = float;                      // element type of an observation
//       using Action = std::int64_t;                    // or ContinuousAction
//       static constexpr NativeCost kCost = NativeCost::kInline;
//
//       static Result<Config> read(OptionReader&) { return Config{}; }
//       static NativeSpec spec(const Config&) {
//         NativeSpec spec;
//         spec.observation = {"", DType::kFloat32, {1}};
//         spec.action_count = 2;
//         spec.max_episode_steps = 10;
//         return spec;
//       }
//       explicit Coin(const Config&) {}
//       void reset(Random& random) { coin = random.below(2); }
//       NativeStep step(std::int64_t action, Random& random) {
//         const bool right = static_cast<std::uint64_t>(action) == coin;
//         reset(random);
//         return {right ? 1.0f : 0.0f, /*terminated=*/false};
//       }
//       void observe(std::span<float> out) const { out[0] = 0; }
//       std::uint64_t coin = 0;
//     };
//
//     registry.add("Coin-v0", native_factory<Coin>());  // native_registry.h
//
// That is all: seeds, step limits, automatic resets, batches, threads and the Python interface come
// with it. An environment may also have
//
//     static constexpr std::size_t kStateSize = 4;      // numbers that are its state
//     void get_state(std::span<double> out) const;      // of kStateSize elements
//     void set_state(std::span<const double> state);
//     void draw(Canvas& canvas) const;                  // a picture (native/canvas.h)
//
// The functions are called without a virtual call, so a short step() is compiled into the loop over
// the batch. They must not wait or throw, and must draw all randomness from the Random that they
// are given: the same seed then gives the same episodes. See docs/concepts/env.md.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "reverie/base/options.h"
#include "reverie/base/random.h"
#include "reverie/base/status.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

class Canvas;

// Where an environment's steps run by default.
enum class NativeCost : std::uint8_t {
  kInline,   // up to about a microsecond: on the caller's thread, since a hand-over costs more
  kThreads,  // longer: on the pool's threads
};

// Describes an environment. The registry fills in `id`.
struct NativeSpec {
  std::string id;
  TensorSpec observation;  // one array; its name is empty
  // Bounds of observations, per element; both empty if there is no bound.
  std::vector<float> observation_low;
  std::vector<float> observation_high;
  // Actions are 0 to action_count - 1; or, if action_count is 0, float32 arrays of `action_shape`,
  // whose range the environment declares.
  std::int64_t action_count = 0;
  Shape action_shape;
  std::vector<float> action_low;
  std::vector<float> action_high;
  std::int64_t max_episode_steps = 0;  // an episode is truncated after this many; 0: never
  // The size of its picture in pixels; 0 if it draws none.
  std::size_t picture_width = 0;
  std::size_t picture_height = 0;
};

// An action of an environment whose actions are arrays: one array, of spec().action_shape, all
// finite. The environment clips values outside [action_low, action_high].
using ContinuousAction = std::span<const float>;

struct NativeStep {
  float reward = 0;
  bool terminated = false;  // the episode ended by the environment's own rules
};

// Where a batch of environments writes its results; row i belongs to environment i.
struct NativeRows {
  std::byte* observation = nullptr;
  std::byte* final_observation = nullptr;  // written for rows whose episode ended
  float* reward = nullptr;
  bool* terminated = nullptr;
  bool* truncated = nullptr;
};

// Environments of one kind, stepped together: one virtual call for each range, none for each
// environment. Not thread-safe, except that calls for disjoint ranges may run concurrently.
class NativeBatch {
 public:
  virtual ~NativeBatch() = default;

  virtual const NativeSpec& spec() const = 0;
  virtual NativeCost cost() const = 0;
  virtual std::size_t size() const = 0;

  // Environment `row` draws from Random(seed) from now on.
  virtual void seed(std::size_t row, std::uint64_t seed) = 0;
  // Resets environments [begin, end). The reward is 0.
  virtual void reset(std::size_t begin, std::size_t end, const NativeRows& rows) = 0;
  // Steps them, each with its row of `actions`: int64 where spec().action_count > 0, else float32.
  // One whose episode ended is reset at once. Requires valid actions, and an earlier reset.
  virtual void step(std::size_t begin, std::size_t end, const std::byte* actions,
                    const NativeRows& rows) = 0;

  // The generator as it was when the row's episode began: begin_episode() with it begins the same
  // episode again, which the same actions then repeat. It writes the row's observation.
  virtual Random episode_random(std::size_t row) const = 0;
  virtual void begin_episode(std::size_t row, const Random& random, const NativeRows& rows) = 0;

  // The environment's own numbers and, last, the steps of its episode so far; UNIMPLEMENTED if it
  // has none. set_state also writes the row's observation.
  virtual Result<std::vector<double>> get_state(std::size_t row) const = 0;
  virtual Status set_state(std::size_t row, std::span<const double> state,
                           const NativeRows& rows) = 0;
  // Draws the environment's current state; UNIMPLEMENTED if it has no picture.
  virtual Status draw(std::size_t row, Canvas& canvas) const = 0;
};

// The largest magnitude of a number in an environment's state. Those that episodes come to are far
// below; the arithmetic of some environments does not end for much larger ones.
inline constexpr double kStateNumberMax = 1e6;

template <typename Env>
class NativeBatchOf final : public NativeBatch {
 public:
  using Observation = typename Env::Observation;
  static constexpr bool kIsDiscrete = std::is_same_v<typename Env::Action, std::int64_t>;
  static_assert(kIsDiscrete || std::is_same_v<typename Env::Action, ContinuousAction>,
                "Action is std::int64_t or ContinuousAction");

  NativeBatchOf(const typename Env::Config& config, NativeSpec spec, std::size_t count)
      : spec_(std::move(spec)),
        observation_count_(static_cast<std::size_t>(element_count(spec_.observation.shape))),
        action_elements_(
            kIsDiscrete ? 1 : static_cast<std::size_t>(element_count(spec_.action_shape))) {
    REVERIE_CHECK((spec_.action_count > 0) == kIsDiscrete);
    REVERIE_CHECK(dtype_size_bytes(spec_.observation.dtype) == sizeof(Observation));
    envs_.reserve(count);
    for (std::size_t i = 0; i < count; ++i) envs_.emplace_back(config);
  }

  const NativeSpec& spec() const override { return spec_; }
  NativeCost cost() const override { return Env::kCost; }
  std::size_t size() const override { return envs_.size(); }

  void seed(std::size_t row, std::uint64_t seed) override { envs_[row].random = Random(seed); }

  void reset(std::size_t begin, std::size_t end, const NativeRows& rows) override {
    for (std::size_t i = begin; i < end; ++i) {
      begin_episode(envs_[i]);
      envs_[i].env.observe(observation(rows.observation, i));
      rows.reward[i] = 0;
      rows.terminated[i] = false;
      rows.truncated[i] = false;
    }
  }

  void step(std::size_t begin, std::size_t end, const std::byte* actions,
            const NativeRows& rows) override {
    const std::int64_t limit = spec_.max_episode_steps;
    for (std::size_t i = begin; i < end; ++i) {
      Row& row = envs_[i];
      const NativeStep step = row.env.step(action(actions, i), row.random);
      const bool truncated = ++row.steps == limit;
      rows.reward[i] = step.reward;
      rows.terminated[i] = step.terminated;
      rows.truncated[i] = truncated;
      if (step.terminated || truncated) {
        row.env.observe(observation(rows.final_observation, i));
        begin_episode(row);
      }
      row.env.observe(observation(rows.observation, i));
    }
  }

  Random episode_random(std::size_t row) const override { return envs_[row].episode_random; }
  void begin_episode(std::size_t row, const Random& random, const NativeRows& rows) override {
    envs_[row].random = random;
    begin_episode(envs_[row]);
    envs_[row].env.observe(observation(rows.observation, row));
  }

  Result<std::vector<double>> get_state(std::size_t row) const override {
    if constexpr (kHasState) {
      std::vector<double> state(Env::kStateSize + 1);
      envs_[row].env.get_state(std::span(state).first(Env::kStateSize));
      state.back() = static_cast<double>(envs_[row].steps);
      return state;
    } else {
      return unimplemented("{} cannot return its state", spec_.id);
    }
  }

  Status set_state(std::size_t row, std::span<const double> state,
                   const NativeRows& rows) override {
    if constexpr (kHasState) {
      if (state.size() != Env::kStateSize + 1) {
        return invalid_argument("the state of {} has {} numbers, {} are given; take it from {}",
                                spec_.id, Env::kStateSize + 1, state.size(), "get_state");
      }
      const double steps = state.back();
      const std::int64_t limit = spec_.max_episode_steps;
      const double steps_end = limit > 0 ? static_cast<double>(limit) : 0x1p53;
      if (!(steps >= 0 && steps < steps_end)) {
        return invalid_argument(
            "the last number of the state of {} is {}; it must be the number of steps so far, "
            "below {}",
            spec_.id, steps, steps_end);
      }
      for (const double number : state.first(Env::kStateSize)) {
        if (std::abs(number) <= kStateNumberMax) continue;
        return invalid_argument(
            "the state of {} has {} in it; its numbers are in [-{}, {}]; take it from get_state",
            spec_.id, number, kStateNumberMax, kStateNumberMax);
      }
      envs_[row].env.set_state(state.first(Env::kStateSize));
      envs_[row].steps = static_cast<std::int64_t>(steps);
      envs_[row].env.observe(observation(rows.observation, row));
      return {};
    } else {
      return unimplemented("{} cannot restore a state", spec_.id);
    }
  }

  Status draw(std::size_t row, Canvas& canvas) const override {
    if constexpr (requires(const Env& env) { env.draw(canvas); }) {
      envs_[row].env.draw(canvas);
      return {};
    } else {
      return unimplemented("{} cannot render", spec_.id);
    }
  }

 private:
  static constexpr bool kHasState = requires { Env::kStateSize; };

  // What a step touches is stored together.
  struct Row {
    explicit Row(const typename Env::Config& config) : env(config) {}
    Env env;
    std::int64_t steps = 0;
    Random random{std::uint64_t{0}};
    Random episode_random{std::uint64_t{0}};
  };

  static void begin_episode(Row& row) {
    row.episode_random = row.random;
    row.env.reset(row.random);
    row.steps = 0;
  }
  std::span<Observation> observation(std::byte* rows, std::size_t row) const {
    return {reinterpret_cast<Observation*>(rows) + row * observation_count_, observation_count_};
  }
  typename Env::Action action(const std::byte* actions, std::size_t row) const {
    if constexpr (kIsDiscrete) {
      return reinterpret_cast<const std::int64_t*>(actions)[row];
    } else {
      return {reinterpret_cast<const float*>(actions) + row * action_elements_, action_elements_};
    }
  }

  NativeSpec spec_;
  std::size_t observation_count_;
  std::size_t action_elements_;
  std::vector<Row> envs_;
};

// Makes `count` environments from their options; `id` is the requested name.
using NativeFactory = std::function<Result<std::unique_ptr<NativeBatch>>(
    std::string_view id, const Options& options, std::size_t count)>;

template <typename Env>
NativeFactory native_factory() {
  return [](std::string_view id, const Options& options,
            std::size_t count) -> Result<std::unique_ptr<NativeBatch>> {
    OptionReader reader(options);
    REVERIE_ASSIGN_OR_RETURN(const typename Env::Config config, Env::read(reader));
    REVERIE_RETURN_IF_ERROR(reader.finish());
    NativeSpec spec = Env::spec(config);
    spec.id = id;
    return std::unique_ptr<NativeBatch>(
        std::make_unique<NativeBatchOf<Env>>(config, std::move(spec), count));
  };
}

}  // namespace reverie
