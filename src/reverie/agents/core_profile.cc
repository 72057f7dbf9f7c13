#include "reverie/agents/core_profile.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <thread>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/base/start_thread.h"
#include "reverie/base/waiting.h"
#include "reverie/learn/parameter_server.h"
#include "reverie/replay/local_service.h"

namespace reverie {
namespace {

constexpr std::size_t kCoreCountMax = 1024;
// Steps in the table before learners are measured: enough not to stay in a small cache, and few
// enough to be collected quickly.
constexpr std::uint64_t kFillSteps = 2'000;

// The first error of several threads.
class FirstError {
 public:
  void keep(const Status& status) {
    MutexLock lock(mutex_);
    if (status_.ok()) status_ = status;
  }
  Status status() const {
    MutexLock lock(mutex_);
    return status_;
  }

 private:
  mutable Mutex mutex_;
  Status status_ REVERIE_GUARDED_BY(mutex_);
};

Status interrupted_status() {
  return cancelled("the measurement was interrupted");
}

// Runs work(i) on thread i repeatedly for a time; each call returns how much it has done. Returns
// the sum per second. `release` ends calls that wait for each other.
Result<double> rate(std::size_t thread_count, const CoreProfileOptions& options,
                    const std::function<Result<double>(std::size_t)>& work,
                    const std::function<void()>& release) {
  Clock& clock = *options.clock;
  std::atomic<bool> is_over{false};
  std::vector<double> done(thread_count);
  FirstError error;
  std::vector<std::thread> threads;
  threads.reserve(thread_count);
  const TimePoint begin = clock.now();
  for (std::size_t i = 0; i < thread_count; ++i) {
    auto started = start_thread("a measurement", [&, i] {
      double sum = 0;
      while (!is_over.load(std::memory_order_relaxed)) {
        Result<double> result = internal_error("nothing was measured");
        try {
          result = work(i);
        } catch (const std::exception& raised) {
          result = internal_error("an environment raised: {}", raised.what());
        }
        if (!result.ok()) {
          if (result.status().code() != StatusCode::kCancelled) error.keep(result.status());
          is_over = true;
          release();
          break;
        }
        sum += *result;
      }
      done[i] = sum;
    });
    if (!started.ok()) {
      error.keep(started.status());
      is_over = true;
      break;
    }
    threads.push_back(std::move(*started));
  }
  const TimePoint end = begin + seconds(options.measure_s);
  while (!is_over && clock.now() < end) {
    pause_until(clock, std::min(end, clock.now() + kInterruptInterval));
    if (!options.interrupted()) continue;
    error.keep(interrupted_status());
    is_over = true;
  }
  is_over = true;
  release();
  for (std::thread& thread : threads) thread.join();
  const double elapsed_s = to_seconds(clock.now() - begin);
  REVERIE_RETURN_IF_ERROR(error.status());
  double sum = 0;
  for (const double part : done) sum += part;
  // A batch that takes longer than the given time still counts as half of one.
  return std::max(sum, 0.5) / elapsed_s;
}

// 1, 2, 3, 4, 6, 8, 12, 16, ... and the last.
std::vector<std::size_t> points(std::size_t core_count) {
  std::vector<std::size_t> chosen;
  for (std::size_t power = 1; power <= core_count; power *= 2) {
    chosen.push_back(power);
    if (power >= 2 && power + power / 2 <= core_count) chosen.push_back(power + power / 2);
  }
  if (chosen.back() != core_count) chosen.push_back(core_count);
  return chosen;
}

Result<std::vector<double>> curve(std::size_t core_count,
                                  const std::function<Result<double>(std::size_t)>& measure) {
  std::vector<double> values(core_count);
  std::size_t last = 0;
  for (const std::size_t cores : points(core_count)) {
    REVERIE_ASSIGN_OR_RETURN(values[cores - 1], measure(cores));
    for (std::size_t x = last + 1; x < cores && last > 0; ++x) {
      const double share = static_cast<double>(x - last) / static_cast<double>(cores - last);
      values[x - 1] = values[last - 1] + share * (values[cores - 1] - values[last - 1]);
    }
    last = cores;
  }
  return values;
}

// What is measured: actors and learners with a store of their own.
struct MeasuredTraining {
  TrainSettings settings;  // with the number of tables
  ReturnLog log{1};
  Loops loops;
};

Status fill(const TrainSettings& settings, Loops& loops, const Agent& agent,
            const CoreProfileOptions& options) {
  const std::uint64_t stride = settings.envs_per_actor;
  const std::uint64_t enough = std::max<std::uint64_t>(kFillSteps, warmup_least(settings));
  std::uint64_t steps = 0;
  try {
    while (steps < enough) {
      if (options.interrupted()) return interrupted_status();
      for (const auto& actor : loops.actors) {
        REVERIE_RETURN_IF_ERROR(actor->step(*agent.weights().networks[0], steps));
        steps += stride;
      }
    }
  } catch (const std::exception& raised) {
    return internal_error("an environment raised: {}", raised.what());
  }
  return {};
}

// With transitions in its tables.
Result<std::unique_ptr<MeasuredTraining>> open_measured(const TrainSettings& settings, Agent& agent,
                                                        const EnvMaker& make_envs,
                                                        const CoreProfileOptions& options) {
  auto made = std::make_unique<MeasuredTraining>();
  made->settings = settings;
  REVERIE_ASSIGN_OR_RETURN(std::vector<TableOptions> tables, training_tables(settings));
  REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<LocalService> service,
                           options.open_store(std::move(tables)));
  REVERIE_ASSIGN_OR_RETURN(made->loops,
                           open_loops(made->settings, agent, make_envs, service, made->log));
  REVERIE_RETURN_IF_ERROR(fill(made->settings, made->loops, agent, options));
  return made;
}

}  // namespace

Result<CoreProfile> profile_cores(TrainSettings settings, Agent& agent, const EnvMaker& make_envs,
                                  const CoreProfileOptions& options) {
  if (options.core_count < 1 || options.core_count > kCoreCountMax) {
    return invalid_argument("cores is {}; it must be an integer from 1 to {}", options.core_count,
                            kCoreCountMax);
  }
  if (!(options.measure_s > 0) || options.measure_s > 60) {
    return invalid_argument("measure_s is {}; it must be a number above 0 and at most 60",
                            options.measure_s);
  }
  const auto tables_of = [given = settings](std::size_t learners) {
    TrainSettings training = given;
    training.learners = learners;
    return replay_shard_count(training);
  };
  settings.actors = options.core_count;
  settings.learners = options.core_count;
  settings.replay_shards = tables_of(std::max<std::size_t>(options.core_count - 1, 1));
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<MeasuredTraining> measured,
                           open_measured(settings, agent, make_envs, options));

  CoreProfile profile;
  const auto measure_actors = [&](std::size_t cores) {
    // Exploration as late in a training, when most actions are the network's.
    const auto act = [&](std::size_t actor) -> Result<double> {
      REVERIE_RETURN_IF_ERROR(
          measured->loops.actors[actor]->step(*agent.weights().networks[0], settings.steps));
      return static_cast<double>(settings.envs_per_actor);
    };
    return rate(cores, options, act, [] {});
  };
  REVERIE_ASSIGN_OR_RETURN(profile.actor_curve, curve(options.core_count, measure_actors));

  settings.actors = 1;  // which fills the tables
  const auto measure_learners = [&](std::size_t cores) -> Result<double> {
    settings.replay_shards = tables_of(cores);
    if (settings.replay_shards != measured->settings.replay_shards) {
      measured.reset();
      REVERIE_ASSIGN_OR_RETURN(measured, open_measured(settings, agent, make_envs, options));
    }
    ParameterServerOptions server_options;
    server_options.learner_count = cores;
    server_options.asynchronous = settings.asynchronous;
    server_options.staleness_max = settings.staleness_max;
    ParameterServer server(agent, server_options);
    const auto learn = [&](std::size_t learner) -> Result<double> {
      LearnerLoop& loop = *measured->loops.learners[learner];
      REVERIE_RETURN_IF_ERROR(loop.sample(0));
      const WeightsView weights = server.weights(learner);
      const std::uint64_t version = weights.version;
      Gradients& gradients = loop.learn(weights);
      REVERIE_ASSIGN_OR_RETURN(const bool is_used, server.submit(learner, gradients, version, 0));
      REVERIE_RETURN_IF_ERROR(loop.update_priorities());
      return is_used ? 1.0 : 0.0;
    };
    return rate(cores, options, learn, [&] { server.stop(); });
  };
  REVERIE_ASSIGN_OR_RETURN(profile.learner_curve, curve(options.core_count, measure_learners));
  return profile;
}

}  // namespace reverie
