// Tested in tests/integration/remote_actors_test.cc.
#include "reverie/learn/served_actors.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/base/start_thread.h"
#include "reverie/learn/actor_messages.h"
#include "reverie/learn/policy_channel.h"
#include "reverie/learn/step_report.h"

namespace reverie {
namespace {

// Weights are published at most this often, since actors use each version for many steps.
constexpr Duration kPublishInterval = std::chrono::milliseconds(10);
// An actor that has been silent for this long does not count, and loses its place.
constexpr Duration kSilence = std::chrono::seconds(2);
// How long to wait until actors may continue, before other reports are read.
constexpr Duration kHoldInterval = std::chrono::milliseconds(2);
// How long close() waits until its actors know. A peer answers in a moment, so this is for actors
// that have died or cannot be reached, and for the next reports of those of older versions.
constexpr Duration kLastAnswers = std::chrono::seconds(1);
constexpr std::size_t kReportsMax = 4096;

// The number of the actor that reports to this run.
Result<std::uint64_t> reporter(const Payload& report, std::uint64_t run) {
  REVERIE_ASSIGN_OR_RETURN(const StepReport::Sender sender, StepReport::sender_of(report));
  if (sender.run == run || sender.run == 0) return sender.actor;
  return unavailable("the learner that this actor joined has ended, and another one was started");
}

void fail(const Peer::Answerer& answerer, InboundId request, const Status& why) {
  answerer.fail(request, {why.code(), "", why.message(), ""});
}

}  // namespace

class ServedActors::Impl : public std::enable_shared_from_this<ServedActors::Impl> {
 public:
  // `peer` outlives close().
  Impl(Peer& peer, Trainer& trainer, std::unique_ptr<Weights> weights)
      : peer_(peer),
        answerer_(peer.answerer()),
        trainer_(trainer),
        weights_(std::move(weights)),
        places_(trainer.outside_actors_max()) {}

  Status check_fork() const { return fork_guard_.check("served actors"); }
  Status start() {
    REVERIE_RETURN_IF_ERROR(publish());
    REVERIE_ASSIGN_OR_RETURN(thread_, start_thread("served actors", [this] { serve(); }));
    return {};
  }

  std::uint64_t run() const { return run_; }

  // On the peer's I/O thread, which must not wait; an insert into the table may wait while it is
  // saved.
  void on_report(Request request, std::uint64_t number) {
    Report report{{request.id, {number, request.caller}}, std::move(request.message.payload)};
    Status full;
    {
      MutexLock lock(mutex_);
      if (!is_closed_ && reports_.size() + waiting_.size() < kReportsMax) {
        ++report_count_;
        reports_.push_back(std::move(report));
        changed_.notify_all();
        return;
      }
      if (!is_closed_) full = resource_exhausted("{} reports wait already", reports_.size());
    }
    if (!full.ok()) return fail(answerer_, report.from.request, full);
    answer(report.from, over());
  }

  void on_withdrawn(InboundId request) {
    MutexLock lock(mutex_);
    // A report that waits to be read is read all the same.
    std::erase_if(waiting_, [&](const Waiting& other) { return other.request == request; });
  }

  Counts counts() const {
    MutexLock lock(mutex_);
    Counts counts{0, report_count_, published_};
    const TimePoint now = Clock::system().now();
    for (const Place& place : places_) {
      counts.actors += place.is_taken && place.heard + kSilence >= now ? 1 : 0;
    }
    counts.actors = std::max(counts.actors, waiting_.size());
    return counts;
  }

  bool begin_close() { return !is_closing_.exchange(true); }
  void close() {
    {
      MutexLock lock(mutex_);
      is_closed_ = true;
      changed_.notify_all();
    }
    const bool was_served = thread_.joinable();
    if (was_served) thread_.join();
    end_reports();
    if (was_served) tell_peers();
    // They share the peer, which must not end on its I/O thread, where this object may end.
    weights_.reset();
  }

  // The order for actors once this is closed.
  static ActorOrder over() {
    ActorOrder order;
    order.is_over = true;
    return order;
  }

 private:
  struct Actor {
    std::uint64_t number = 0;
    std::string peer;
    bool operator==(const Actor&) const = default;
  };
  struct Place {
    bool is_taken = false;
    Actor actor;
    TimePoint heard{};
    bool is_told = false;  // that the training is over
  };
  struct Waiting {
    InboundId request;
    Actor actor;
  };
  struct Report {
    Waiting from;
    Payload payload;
  };
  class CountedSink final : public StepSink {
   public:
    explicit CountedSink(std::shared_ptr<ReplayBuffer> replay) : replay_(std::move(replay)) {}
    Status add(const StepArrays& step) override {
      Status status = replay_.add(step);
      if (status.ok()) ++count_;
      return status;
    }
    std::size_t count() const { return count_; }

   private:
    ReplaySink replay_;
    std::size_t count_ = 0;
  };

  // The order for actors.
  ActorOrder order() const {
    ActorOrder order;
    const TrainProgress now = trainer_.progress();
    order.steps = now.steps;
    order.is_over = trainer_.has_all_steps();
    const Weights::VersionPtr held = weights_->held();
    order.policy = held ? held->version : 0;
    return order;
  }

  Status publish() {
    const nn::PublishedParameters::Version newest = trainer_.newest_policy();
    const Weights::VersionPtr held = weights_->held();
    if (held && held->version >= newest.version) return {};
    REVERIE_RETURN_IF_ERROR(publish_policy(*weights_, newest.version, *newest.parameters));
    MutexLock lock(mutex_);
    ++published_;
    return {};
  }

  // Reads reports, publishes weights periodically, and answers reports that had to wait.
  void serve() {
    Clock& clock = Clock::system();
    while (true) {
      std::vector<Report> reports;
      bool is_waited_for = false;
      {
        MutexLock lock(mutex_);
        if (!is_closed_ && reports_.empty() && waiting_.empty()) {
          (void)clock.wait_until(changed_, mutex_, clock.now() + kPublishInterval);
        }
        if (is_closed_) break;
        reports.swap(reports_);
        is_waited_for = !waiting_.empty();
      }
      for (const Report& report : reports) read(report);
      // If a version cannot be published, a later one will be.
      if (const TimePoint now = clock.now(); now >= publish_at_) {
        (void)publish();
        publish_at_ = now + kPublishInterval;
      }
      if (!is_waited_for) continue;
      // Other reports may have arrived meanwhile, so it does not wait for long.
      if (trainer_.wait_to_collect(clock.now() + kHoldInterval)) answer_waiting(order());
    }
  }

  // Answers all that is left: a caller would wait for it as long as there is a connection. Requires
  // that the thread has ended.
  void end_reports() {
    std::vector<Report> reports;
    {
      MutexLock lock(mutex_);
      reports.swap(reports_);
    }
    for (const Report& report : reports) {
      if (const Status taken = take_steps(report); !taken.ok()) {
        fail(answerer_, report.from.request, taken);
      } else {
        answer(report.from, over());
      }
    }
    answer_waiting(over());
  }

  void answer(const Waiting& report, const ActorOrder& order) {
    answerer_.answer(report.request, encode(order));
    if (!order.is_over) return;
    MutexLock lock(mutex_);
    for (Place& place : places_) {
      if (place.is_taken && place.actor == report.actor) place.is_told = true;
    }
    changed_.notify_all();
  }

  // Otherwise actors would believe that the learner was lost, and wait for it to return. All peers
  // are told, since some may have joined and not reported yet; those that do not act have no such
  // function. Actors of older versions have none either: the answer to their next report tells
  // them.
  void tell_peers() {
    Clock& clock = Clock::system();
    const TimePoint until = clock.now() + kLastAnswers;
    for (const std::string& name : connected_peers()) {
      {
        MutexLock lock(mutex_);
        ++unanswered_;
      }
      const auto on_answer = [weak = weak_from_this(), name](const CallResult& result) {
        const bool is_told = result.kind == CallResult::Kind::kAnswer;
        if (const auto actors = weak.lock()) actors->on_told(name, is_told);
      };
      const Status called =
          peer_.call(name, std::string(kTrainingEndFunction), {}, {until}, on_answer).status();
      if (!called.ok()) on_told(name, false);
    }
    MutexLock lock(mutex_);
    while ((unanswered_ > 0 || has_actors_to_tell(clock.now())) && clock.now() < until) {
      (void)clock.wait_until(changed_, mutex_, until);
    }
  }
  void on_told(const std::string& peer, bool is_told) {
    MutexLock lock(mutex_);
    --unanswered_;
    for (Place& place : places_) {
      if (is_told && place.actor.peer == peer) place.is_told = true;
    }
    changed_.notify_all();
  }
  std::set<std::string> connected_peers() const {
    std::set<std::string> names;
    for (const PeerInfo& peer : peer_.peers()) {
      if (peer.is_connected) names.insert(peer.name);
    }
    return names;
  }
  bool has_actors_to_tell(TimePoint now) const REVERIE_REQUIRES(mutex_) {
    return std::any_of(places_.begin(), places_.end(), [&](const Place& place) {
      return place.is_taken && !place.is_told && place.heard + kSilence >= now;
    });
  }

  // Inserts the steps into the table, and answers now or once the actor may continue.
  void read(const Report& report) {
    const Status taken = take_steps(report);
    if (!taken.ok()) return fail(answerer_, report.from.request, taken);
    if (trainer_.may_collect()) return answer(report.from, order());
    MutexLock lock(mutex_);
    waiting_.push_back(report.from);
  }

  Status take_steps(const Report& report) {
    REVERIE_ASSIGN_OR_RETURN(const std::size_t place, place_of(report.from.actor));
    Status status;
    trainer_.collect([&] {
      CountedSink sink(trainer_.outside_replay(place));
      const std::size_t env_count = trainer_.settings().envs_per_actor;
      Result<StepReport::Read> read =
          StepReport::read(report.payload, trainer_.agent().spec(), env_count, sink);
      status = read.status();
      // Steps in the table count, even those of an incomplete report.
      Trainer::OutsideSteps inserted{sink.count() * env_count, {}};
      if (read.ok()) inserted.episodes = std::move(read->episodes);
      return inserted;
    });
    return status;
  }

  // After a pause of the learner, actors have joined again whose old places were heard just now.
  Result<std::size_t> place_of(const Actor& actor) {
    if (const std::optional<std::size_t> place = take_place(actor)) return *place;
    free_places_of_lost_peers();
    if (const std::optional<std::size_t> place = take_place(actor)) return *place;
    return resource_exhausted("the training has {} remote actors, which is its maximum",
                              trainer_.outside_actors_max());
  }
  void free_places_of_lost_peers() {
    const std::set<std::string> connected = connected_peers();
    MutexLock lock(mutex_);
    for (Place& place : places_) {
      if (!connected.contains(place.actor.peer)) place.is_taken = false;
    }
  }

  // That of the actor, else one that is free, or whose actor was silent for longest.
  std::optional<std::size_t> take_place(const Actor& actor) {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::system().now();
    std::size_t best = places_.size();
    for (std::size_t i = 0; i < places_.size(); ++i) {
      Place& place = places_[i];
      if (place.is_taken && place.actor == actor) {
        place.heard = now;
        return i;
      }
      const bool is_free = !place.is_taken || place.heard + kSilence < now;
      if (is_free && (best == places_.size() || place.heard < places_[best].heard)) best = i;
    }
    if (best == places_.size()) return std::nullopt;
    places_[best] = {true, actor, now, false};
    return best;
  }

  void answer_waiting(const ActorOrder& order) {
    std::vector<Waiting> waiting;
    {
      MutexLock lock(mutex_);
      waiting.swap(waiting_);
    }
    for (const Waiting& report : waiting) answer(report, order);
  }

  const ForkGuard fork_guard_;
  const std::uint64_t run_ = (random_seed() >> 1) | 1;  // fits a signed number, and is not 0
  Peer& peer_;                                          // the thread's and close()'s
  const Peer::Answerer answerer_;
  Trainer& trainer_;
  std::unique_ptr<Weights> weights_;  // the thread's, until close()
  std::thread thread_;
  TimePoint publish_at_{};  // the thread's
  std::atomic<bool> is_closing_{false};
  mutable Mutex mutex_;
  CondVar changed_;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  std::vector<Report> reports_ REVERIE_GUARDED_BY(mutex_);   // to be read
  std::vector<Waiting> waiting_ REVERIE_GUARDED_BY(mutex_);  // until actors may go on
  std::vector<Place> places_ REVERIE_GUARDED_BY(mutex_);
  std::size_t unanswered_ REVERIE_GUARDED_BY(mutex_) = 0;  // calls that tell
  std::uint64_t report_count_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::uint64_t published_ REVERIE_GUARDED_BY(mutex_) = 0;
};

ServedActors::ServedActors(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl)
    : peer_(std::move(peer)), impl_(std::move(impl)) {}

Result<std::unique_ptr<ServedActors>> ServedActors::open(std::shared_ptr<Peer> peer,
                                                         Trainer& trainer) {
  REVERIE_ASSIGN_OR_RETURN(std::unique_ptr<Weights> weights,
                           Weights::make(peer, {std::string(kPolicyWeights), {}, true}));
  const Peer::Answerer answerer = peer->answerer();
  auto impl = std::make_shared<Impl>(*peer, trainer, std::move(weights));
  const std::string function(kActorReportFunction);
  const std::weak_ptr<Impl> weak = impl;
  const std::uint64_t run = impl->run();
  REVERIE_RETURN_IF_ERROR(peer->define(function, [weak, answerer, run](Request request) {
    const Result<std::uint64_t> actor = reporter(request.message.payload, run);
    if (!actor.ok()) return fail(answerer, request.id, actor.status());
    if (const auto actors = weak.lock()) return actors->on_report(std::move(request), *actor);
    answerer.answer(request.id, encode(Impl::over()));
  }));
  peer->add_withdrawn(weak, [weak](InboundId request) {
    if (const auto actors = weak.lock()) actors->on_withdrawn(request);
  });
  std::unique_ptr<ServedActors> served(new ServedActors(std::move(peer), impl));
  REVERIE_RETURN_IF_ERROR(impl->start());
  return served;
}

ServedActors::~ServedActors() {
  close();
  // A forked child has none of the waiting threads, so it must not destroy what they use.
  if (!impl_->check_fork().ok()) leave_to_parent(impl_);
}

ServedActors::Counts ServedActors::counts() const {
  return impl_->counts();
}

std::uint64_t ServedActors::run() const {
  return impl_->run();
}

void ServedActors::close() {
  if (!impl_->check_fork().ok()) return;
  if (!impl_->begin_close()) return;  // a successor may have defined the function again
  impl_->close();
  (void)peer_->undefine(std::string(kActorReportFunction));
}

}  // namespace reverie
