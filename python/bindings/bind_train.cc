// Binds agents/algorithms.h and learn/trainer.h. reverie/agents/ is the only caller.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/actor_envs.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/native_envs.h"
#include "python/bindings/network.h"
#include "python/bindings/rpc.h"
#include "reverie/agents/algorithms.h"
#include "reverie/base/mutex.h"
#include "reverie/calls/notice.h"
#include "reverie/checkpoint/checkpointer.h"
#include "reverie/learn/actor_messages.h"
#include "reverie/learn/core_split.h"
#include "reverie/learn/served_actors.h"
#include "reverie/replay/local_service.h"

namespace reverie::python {
namespace {

// Without a `source` the environments are native ones.
TrainPlan make_plan(const std::string& algorithm, const std::string& env_id,
                    const Options& env_options, const Options& options, nb::object source) {
  if (source.is_none()) {
    return unwrap(without_gil(
        [&] { return plan_training(native_registry(), algorithm, env_id, env_options, options); }));
  }
  return unwrap(plan_training(python_env_source(std::move(source)), algorithm, options));
}

// A training and its own store; serves actors in other processes, if requested.
class PyTrainer {
 public:
  PyTrainer(const std::string& algorithm, const std::string& env_id, const Options& env_options,
            const Options& options, nb::object source, const std::string& resume,
            bool has_actors_elsewhere) {
    TrainPlan plan = make_plan(algorithm, env_id, env_options, options, std::move(source));
    trainer_ = unwrap(without_gil([&] {
      return has_actors_elsewhere ? open_served_training(std::move(plan), resume)
                                  : open_training(std::move(plan), resume);
    }));
  }

  // Its threads may wait for the interpreter's lock.
  ~PyTrainer() {
    const GilReleased released;
    served_.reset();
    trainer_.reset();
  }
  PyTrainer(const PyTrainer&) = delete;
  PyTrainer& operator=(const PyTrainer&) = delete;

  // Without the interpreter's lock: a failed start waits for threads that may need it.
  void start() const {
    Trainer& trainer = this->trainer();
    unwrap(without_gil([&] { return trainer.start(); }));
  }
  void stop() const { trainer().stop(); }

  // Checks for Ctrl-C while it waits.
  bool wait(nb::handle timeout_s) const {
    Trainer& trainer = this->trainer();
    return wait_in_slices(deadline(timeout_s),
                          [&trainer](TimePoint until) { return trainer.wait(until); });
  }

  // The folder stays locked until another one is given, or release().
  std::string save(const std::string& path) {
    Trainer& trainer = this->trainer();
    return unwrap(without_gil([&]() -> Result<std::string> {
      const MutexLock lock(save_mutex_);
      if (!checkpointer_ || saved_to_ != path) {
        checkpointer_.reset();
        REVERIE_ASSIGN_OR_RETURN(checkpointer_, checkpoint::Checkpointer::open(path, {}));
        saved_to_ = path;
      }
      return trainer.save(*checkpointer_, interruption());
    }));
  }
  void release() {
    if (!trainer_->check_usable().ok()) return;
    without_gil([&] {
      const MutexLock lock(save_mutex_);
      checkpointer_.reset();
    });
  }

  void raise_if_failed() const { unwrap(trainer().status()); }

  // Returns the number of the run, for those who join.
  std::uint64_t serve(RpcPeer& rpc) {
    Trainer& trainer = this->trainer();
    served_ = unwrap(
        without_gil([&, &peer = rpc.shared_peer()] { return ServedActors::open(peer, trainer); }));
    return served_->run();
  }
  // The number of active actors in other processes.
  std::size_t actors_elsewhere() const {
    (void)trainer();
    return served_ ? served_->counts().actors : 0;
  }
  void end_serving() {
    if (!trainer_->check_usable().ok()) return;
    // The interpreter's lock guards the pointer: another thread may ask for actors_elsewhere().
    std::unique_ptr<ServedActors> served = std::move(served_);
    without_gil([&] { served.reset(); });
  }

  void load_policy(const std::string& folder) const {
    Trainer& trainer = this->trainer();
    unwrap(without_gil([&] { return reverie::load_policy(trainer, folder); }));
  }

  nb::dict progress() const {
    const TrainProgress now = trainer().progress();
    nb::dict given;
    given["end"] = std::string(train_end_name(now.end));
    given["steps"] = now.steps;
    given["batches"] = now.batches;
    given["updates"] = now.updates;
    given["batch_count"] = now.batch_count;
    given["episodes"] = now.episodes;
    given["mean_return"] = now.mean_return ? nb::cast(*now.mean_return) : nb::none();
    given["measured_interval"] =
        now.measured_interval ? nb::cast(*now.measured_interval) : nb::none();
    given["elapsed_s"] = now.elapsed_s;
    given["loss"] = now.loss;
    given["actors_waited_s"] = now.waits.actors_s;
    given["learners_waited_s"] = now.waits.learners_s;
    given["staleness_mean"] = now.server.staleness_mean;
    given["staleness_max"] = now.server.staleness_max;
    given["dropped"] = now.server.dropped;
    return given;
  }

  // (steps so far, return, length) of each episode from number `first` on.
  std::vector<std::tuple<std::uint64_t, double, std::uint64_t>> episodes(std::size_t first) const {
    std::vector<std::tuple<std::uint64_t, double, std::uint64_t>> given;
    for (const EpisodeRecord& episode : trainer().episodes(first)) {
      given.emplace_back(episode.step, episode.episode_return, episode.length);
    }
    return given;
  }

  Options settings() const { return write_settings(trainer().settings()); }

  Network policy() const {
    Trainer& trainer = this->trainer();
    return {trainer.agent().policy_network(), without_gil([&] { return trainer.policy(); })};
  }

  std::vector<std::tuple<std::uint64_t, double>> evaluations() const {
    std::vector<std::tuple<std::uint64_t, double>> given;
    for (const Evaluation& evaluation : trainer().evaluations()) {
      given.emplace_back(evaluation.step, evaluation.mean_return);
    }
    return given;
  }

  // A copy of the best policy, or of the latest if there is none.
  Network best_policy() const {
    Trainer& trainer = this->trainer();
    std::optional<nn::Parameters> best = trainer.best_policy();
    if (!best) return policy();
    return {trainer.agent().policy_network(), std::move(*best)};
  }

  std::vector<double> evaluate(const Network& policy, std::size_t episode_count,
                               std::uint64_t seed) const {
    const Trainer& trainer = this->trainer();
    EvaluateOptions options;
    options.episode_count = episode_count;
    options.interrupted = interruption();
    return unwrap(
        without_gil([&] { return trainer.evaluate(policy.parameters(), seed, options); }));
  }

 private:
  // Checks for Ctrl-C, about twenty times a second.
  static std::function<bool()> interruption() {
    return [next = Clock::system().now() + kInterruptInterval]() mutable {
      const TimePoint now = Clock::system().now();
      if (now < next) return false;
      next = now + kInterruptInterval;
      const GilHeld held;
      return PyErr_CheckSignals() != 0;
    };
  }

  // Refused in a forked child.
  Trainer& trainer() const {
    unwrap(trainer_->check_usable());
    return *trainer_;
  }

  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<ServedActors> served_;
  Mutex save_mutex_;
  std::unique_ptr<checkpoint::Checkpointer> checkpointer_ REVERIE_GUARDED_BY(save_mutex_);
  std::string saved_to_ REVERIE_GUARDED_BY(save_mutex_);
};

// Whether the learner has told this peer that the training is over.
class PyTrainingEnd {
 public:
  explicit PyTrainingEnd(RpcPeer& rpc)
      : end_(unwrap(Notice::open(rpc.shared_peer(), std::string(kTrainingEndFunction)))) {}
  ~PyTrainingEnd() {
    const GilReleased released;
    end_.reset();
  }
  PyTrainingEnd(const PyTrainingEnd&) = delete;
  PyTrainingEnd& operator=(const PyTrainingEnd&) = delete;

  bool is_over() const { return end_->is_given(); }
  const std::shared_ptr<Notice>& notice() const { return end_; }

 private:
  std::shared_ptr<Notice> end_;
};

// An actor of a training in another process.
class PyRemoteActor {
 public:
  PyRemoteActor(RpcPeer& rpc, const std::string& learner, std::uint64_t number, std::uint64_t run,
                const PyTrainingEnd& end, const std::string& algorithm, const std::string& env_id,
                const Options& env_options, const Options& options, nb::object source) {
    TrainPlan plan = make_plan(algorithm, env_id, env_options, options, std::move(source));
    actor_ = unwrap(without_gil([&, &peer = rpc.shared_peer()] {
      return open_remote_actor(std::move(plan), peer, learner, number, run, end.notice());
    }));
  }
  ~PyRemoteActor() {
    const GilReleased released;
    actor_.reset();
  }
  PyRemoteActor(const PyRemoteActor&) = delete;
  PyRemoteActor& operator=(const PyRemoteActor&) = delete;

  // For a thread that does not get Ctrl-C: another one calls stop().
  void run() {
    (void)unwrap(without_gil([&] { return actor_->run(TimePoint::max()); }));
  }
  void stop() {
    without_gil([&] { actor_->stop(); });
  }
  nb::dict counts() const {
    const RemoteActor::Counts counts = actor_->counts();
    nb::dict given;
    given["steps"] = counts.steps;
    given["episodes"] = counts.episodes;
    given["policies"] = counts.policies;
    return given;
  }

 private:
  std::unique_ptr<RemoteActor> actor_;
};

nb::dict described(const CoreSplit& split) {
  nb::dict given;
  given["actor_cores"] = split.actor_cores;
  given["learner_cores"] = split.learner_cores;
  given["ratio"] = split.ratio;
  given["steps_per_s"] = split.steps_per_s;
  return given;
}

nb::dict tune(const std::string& algorithm, const std::string& env_id, const Options& env_options,
              const Options& options, std::size_t cores, double measure_s, nb::object source) {
  const TrainPlan plan = make_plan(algorithm, env_id, env_options, options, std::move(source));
  const CoreTuning tuning = unwrap(without_gil([&]() -> Result<CoreTuning> {
    CoreProfileOptions profile;
    profile.core_count = cores;
    profile.measure_s = measure_s;
    profile.interrupted = Waiting::for_signals().interrupted;
    return tune_cores(plan, profile);
  }));
  nb::dict given = described(tuning.split);
  given["actor_curve"] = tuning.profile.actor_curve;
  given["learner_curve"] = tuning.profile.learner_curve;
  return given;
}

nb::dict split(const std::vector<double>& actor_curve, const std::vector<double>& learner_curve,
               std::size_t cores, double update_interval, bool learners_need_cores) {
  CoreSplitOptions options;
  options.core_count = cores;
  options.update_interval = update_interval;
  options.learners_need_no_core = !learners_need_cores;
  return described(unwrap(split_cores(actor_curve, learner_curve, options)));
}

}  // namespace

void bind_train(nb::module_& m) {
  using namespace nb::literals;
  nb::class_<PyTrainer>(m, "Trainer", "See ``reverie.agents.Trainer``.")
      .def(nb::init<const std::string&, const std::string&, const Options&, const Options&,
                    nb::object, const std::string&, bool>(),
           "algorithm"_a, "env"_a, "env_options"_a, "options"_a, "source"_a.none(), "resume"_a,
           "has_actors_elsewhere"_a,
           nb::sig("def __init__(self, algorithm: str, env: str, "
                   "env_options: dict[str, bool | int | float | str], "
                   "options: dict[str, bool | int | float | str], "
                   "source: object | None, resume: str, "
                   "has_actors_elsewhere: bool) -> None"))
      .def("serve", &PyTrainer::serve, "rpc"_a)
      .def("actors_elsewhere", &PyTrainer::actors_elsewhere)
      .def("end_serving", &PyTrainer::end_serving)
      .def("save", &PyTrainer::save, "path"_a)
      .def("release", &PyTrainer::release)
      .def("load_policy", &PyTrainer::load_policy, "folder"_a)
      .def("start", &PyTrainer::start)
      .def("stop", &PyTrainer::stop)
      .def("wait", &PyTrainer::wait, "timeout_s"_a.none(),
           nb::sig("def wait(self, timeout_s: float | None) -> bool"))
      .def("raise_if_failed", &PyTrainer::raise_if_failed)
      .def("progress", &PyTrainer::progress, nb::sig("def progress(self) -> dict[str, typing.Any]"))
      .def("episodes", &PyTrainer::episodes, "first"_a)
      .def("settings", &PyTrainer::settings,
           nb::sig("def settings(self) -> dict[str, bool | int | float | str]"))
      .def("policy", &PyTrainer::policy)
      .def("evaluations", &PyTrainer::evaluations)
      .def("best_policy", &PyTrainer::best_policy)
      .def("evaluate", &PyTrainer::evaluate, "policy"_a, "episodes"_a, "seed"_a);
  nb::class_<PyTrainingEnd>(m, "TrainingEnd", "See ``reverie.agents.act``.")
      .def(nb::init<RpcPeer&>(), "rpc"_a)
      .def("is_over", &PyTrainingEnd::is_over);
  nb::class_<PyRemoteActor>(m, "RemoteActor", "See ``reverie.agents.act``.")
      .def(nb::init<RpcPeer&, const std::string&, std::uint64_t, std::uint64_t,
                    const PyTrainingEnd&, const std::string&, const std::string&, const Options&,
                    const Options&, nb::object>(),
           "rpc"_a, "learner"_a, "number"_a, "run"_a, "end"_a, "algorithm"_a, "env"_a,
           "env_options"_a, "options"_a, "source"_a.none(),
           nb::sig("def __init__(self, rpc: RpcPeer, learner: str, number: int, run: int, "
                   "end: TrainingEnd, algorithm: str, "
                   "env: str, env_options: dict[str, bool | int | float | str], "
                   "options: dict[str, bool | int | float | str], "
                   "source: object | None) -> None"))
      .def("run", &PyRemoteActor::run)
      .def("stop", &PyRemoteActor::stop)
      .def("counts", &PyRemoteActor::counts, nb::sig("def counts(self) -> dict[str, int]"));
  m.def("tune_cores", &tune, "algorithm"_a, "env"_a, "env_options"_a, "options"_a, "cores"_a,
        "measure_s"_a, "source"_a.none(),
        nb::sig("def tune_cores(algorithm: str, env: str, "
                "env_options: dict[str, bool | int | float | str], "
                "options: dict[str, bool | int | float | str], cores: int, measure_s: float, "
                "source: object | None) -> "
                "dict[str, typing.Any]"));
  m.def("split_cores", &split, "actor_curve"_a, "learner_curve"_a, "cores"_a, "update_interval"_a,
        "learners_need_cores"_a,
        nb::sig("def split_cores(actor_curve: collections.abc.Sequence[float], learner_curve: "
                "collections.abc.Sequence[float], cores: int, update_interval: float, "
                "learners_need_cores: bool) -> dict[str, typing.Any]"));
  m.def("algorithm_names", [] {
    std::vector<std::string> names;
    for (const std::string_view name : algorithm_names()) names.emplace_back(name);
    return names;
  });
  m.def(
      "check_settings", [](const Options& options) { unwrap(check_options(options)); }, "options"_a,
      nb::sig("def check_settings(options: dict[str, bool | int | float | str]) -> None"),
      "Raises InvalidArgumentError for a setting that there is not, or that is out of range.");
  m.def("settings_free_at_resume", [] {
    std::vector<std::string> names;
    for (const std::string_view name : settings_free_at_resume()) names.emplace_back(name);
    return names;
  });
  m.def(
      "default_settings",
      [](const std::string& algorithm) {
        return write_settings(default_settings(unwrap(algorithm_named(algorithm))));
      },
      "algorithm"_a,
      nb::sig("def default_settings(algorithm: str) -> dict[str, bool | int | float | str]"));
  m.def(
      "checked_settings",
      [](const std::string& algorithm, const Options& options) {
        const Algorithm known = unwrap(algorithm_named(algorithm));
        return write_settings(unwrap(read_settings(options, default_settings(known))));
      },
      "algorithm"_a, "options"_a,
      nb::sig("def checked_settings(algorithm: str, "
              "options: dict[str, bool | int | float | str]) -> "
              "dict[str, bool | int | float | str]"));
}

}  // namespace reverie::python
