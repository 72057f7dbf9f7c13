// Tested in accumulator_test.cc.
#include "reverie/accumulator/accumulator.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/random.h"
#include "reverie/base/timer_queue.h"
#include "reverie/calls/peer_turns.h"

namespace reverie {
namespace {

constexpr std::size_t kCounts = 3;
// Results that wait while the program is stalled.
constexpr std::size_t kKeptBytesMax = std::size_t{1} << 30;
constexpr std::size_t kKeptMin = 8;
constexpr std::size_t kKeptMax = 1024;
// Larger sums are not zeroed as a message arrives.
constexpr std::size_t kZeroedBytesMax = std::size_t{2} << 20;
// Bytes of a round's name besides the function's: a generation, a slot and separators.
constexpr std::size_t kRoundNameRest = 32;

std::size_t leaf_bytes(const ReduceLeaf& leaf) {
  return static_cast<std::size_t>(element_count(leaf.shape)) * dtype_size_bytes(leaf.dtype);
}

std::vector<ReduceLeaf> round_leaves(const std::vector<ReduceLeaf>& gradients) {
  std::vector<ReduceLeaf> leaves(1);
  leaves[0].name = "counts";
  leaves[0].dtype = DType::kInt64;
  leaves[0].shape = {static_cast<std::int64_t>(kCounts)};
  leaves.insert(leaves.end(), gradients.begin(), gradients.end());
  return leaves;
}

}  // namespace

class Accumulator::Impl : public std::enable_shared_from_this<Accumulator::Impl> {
 public:
  using RoundPtr = std::shared_ptr<GroupRound>;

  Impl(Peer* peer, Group* group, AccumulatorCore::Options options,
       const std::vector<ReduceLeaf>& gradients, bool is_large)
      : turns_(peer),
        group_(group),
        function_(options.function),
        leaves_(round_leaves(gradients)),
        is_large_(is_large),
        core_(std::move(options)),
        timers_(clock_),
        alarm_(timers_, [this] { turn([](TimePoint) {}); }) {}

  Status check_fork() const { return fork_guard_.check("accumulator"); }

  // Handles an event under the lock, then runs its effects without a lock. Does nothing after
  // close(). `is_program`: on a thread of the program, which may take its time.
  template <typename Event>
  void turn(Event event, bool is_program = false) {
    const PeerTurn peer(turns_);
    if (!peer) return;
    bool is_first = true;
    while (true) {
      std::vector<AccumulatorCore::Outgoing> outgoing;
      std::vector<RoundPtr> abandoned;
      std::optional<Job> job;
      TimePoint next;
      {
        MutexLock lock(mutex_);
        const TimePoint now = clock_.now();
        if (group_->membership_id() != core_.key().membership) {
          core_.on_membership(group_->membership(), now);
        }
        drop_void(abandoned);
        if (std::exchange(is_first, false)) event(now);
        look_at_rounds(now);
        if (core_.next_tick() <= now) core_.tick(now);
        drop_void(abandoned);
        const bool is_left = !is_program && is_left_to_timers(now);
        if (!is_left) job = next_job(now);
        if (core_.next_tick() <= now) core_.tick(now);
        outgoing = core_.take_outgoing();
        next = is_left ? now : core_.next_tick();
      }
      for (AccumulatorCore::Outgoing& out : outgoing) send(peer, std::move(out));
      for (const RoundPtr& round : abandoned) round->cancel();
      if (!job) {
        if (next < TimePoint::max()) alarm_.set(next);
        return;
      }
      begin(*job);
    }
  }

  Result<View> update(bool is_busy) {
    View view;
    std::optional<AccumulatorCore::State> state;
    Status refusal = failed_precondition("the accumulator is closed");
    const auto event = [&](TimePoint now) {
      mutex_.assert_held();
      core_.advance(now);
      look_at_rounds(now);
      if (!is_busy) {
        state = uncopied_ ? std::exchange(uncopied_, std::nullopt) : core_.take_state(now);
        if (!state) view.sum = take_sum(now);
      }
      refusal = core_.refusal();
      view.leader = core_.leader();
      view.is_connected = !core_.leader().empty() && core_.has_model();
      view.wants_gradients = core_.wants_gradients();
      view.wants_state = core_.wants_state();
      view.version = core_.version();
    };
    turn(event, /*is_program=*/true);
    if (!refusal.ok()) return refusal;
    if (!state) return view;
    // Others get it while the program may write to it.
    if (state->is_passed_on && !keep_copies(state->value.bulk)) {
      MutexLock lock(mutex_);
      uncopied_ = std::move(state);  // for a later call: the core counts on it
      return resource_exhausted("there is no memory for the model that has arrived; free some");
    }
    view.state = std::move(state->value);
    return view;
  }

  Status contribute(std::uint64_t samples, std::span<const ReduceLeaf> gradients,
                    std::uint64_t weight) {
    REVERIE_RETURN_IF_ERROR(check(gradients));
    AccumulatorKey key;
    std::size_t members = 0;
    std::optional<SumSpace> sums;
    {
      MutexLock lock(mutex_);
      if (core_.leader().empty()) return {};
      key = core_.key();
      members = core_.member_count();
      sums = std::exchange(sums_, std::nullopt);
      is_adding_ = true;  // the round does not begin before the sums are put back
    }
    Status status;
    if (sums) {
      add(*sums, gradients, weight);
    } else {
      Result<SumSpace> made = allocate(key.membership, members);
      status = made.status();
      if (status.ok()) sums = load(std::move(*made), gradients, weight);
    }
    turn([&](TimePoint now) {
      mutex_.assert_held();
      is_adding_ = false;
      if (!status.ok() || core_.key() != key) return;
      sums_ = std::move(sums);
      core_.contribute(samples, now);
    });
    return status;
  }

  template <typename Call>
  void call_core(Call call) {
    turn([&](TimePoint now) {
      mutex_.assert_held();
      call(core_, now);
    });
  }

  std::string why_waiting() const {
    MutexLock lock(mutex_);
    return core_.why_waiting();
  }

  void on_request(Request request, const Peer::Answerer& answerer) {
    Result<Payload> answer = unavailable("the accumulator is closed");
    call_core([&](AccumulatorCore& core, TimePoint now) {
      answer = core.on_request(request.caller, std::move(request.message.payload), now);
    });
    if (answer.ok()) return answerer.answer(request.id, std::move(*answer));
    answerer.fail(request.id, {answer.status().code(), "", answer.status().message(), ""});
  }

  const std::string& function() const { return function_; }
  // False if close() was called before.
  bool begin_close() { return !is_closing_.exchange(true); }
  // Rounds in progress end without this object.
  void close() {
    turns_.close();
    timers_.stop();
    MutexLock lock(mutex_);
    rounds_.clear();
    results_.clear();
    sums_.reset();
  }

 private:
  struct Job {
    AccumulatorCore::Begin begin;
    std::size_t members = 0;
    std::optional<SumSpace> sums;
  };

  Status check(std::span<const ReduceLeaf> gradients) const {
    if (gradients.size() + 1 != leaves_.size()) {
      return invalid_argument("gradients has {} arrays; it must have {}", gradients.size(),
                              leaves_.size() - 1);
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ReduceLeaf& mine = leaves_[i + 1];
      if (gradients[i].dtype == mine.dtype && gradients[i].shape == mine.shape) continue;
      return invalid_argument("gradients[{}] is {} of {}; it must be {} of {}", i,
                              shape_text(gradients[i].shape), dtype_name(gradients[i].dtype),
                              shape_text(mine.shape), dtype_name(mine.dtype));
    }
    return {};
  }

  // The layout is the same until the number of members changes.
  Result<std::shared_ptr<const ReduceLayout>> layout(std::size_t members) {
    {
      MutexLock lock(mutex_);
      if (layout_ && layout_members_ == members) return layout_;
    }
    std::vector<ReduceLeaf> leaves = leaves_;
    for (ReduceLeaf& leaf : leaves) {  // the layout only checks sizes
      leaf.bytes = {static_cast<const std::byte*>(nullptr), leaf_bytes(leaf)};
    }
    REVERIE_ASSIGN_OR_RETURN(ReduceLayout made,
                             ReduceLayout::make(ReduceOp::kSum, leaves, members));
    MutexLock lock(mutex_);
    layout_ = std::make_shared<const ReduceLayout>(std::move(made));
    layout_members_ = members;
    return layout_;
  }

  Result<SumSpace> allocate(std::uint64_t membership, std::size_t members) {
    REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<const ReduceLayout> made, layout(members));
    return group_->sum_space(membership, std::move(made));
  }

  static SumSpace load(SumSpace sums, std::span<const ReduceLeaf> gradients, std::uint64_t weight) {
    static constexpr std::byte kNoCounts[kCounts * sizeof(std::int64_t)] = {};
    sums.layout().load_scaled(0, kNoCounts, 1, sums.bytes());
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      sums.layout().load_scaled(i + 1, gradients[i].bytes, weight, sums.bytes());
    }
    return sums;
  }

  static void add(const SumSpace& sums, std::span<const ReduceLeaf> gradients,
                  std::uint64_t weight) {
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const ReduceLayout::Piece& piece = sums.layout().pieces()[i + 1];
      add_scaled(piece.dtype, sums.bytes().data() + piece.offset, gradients[i].bytes.data(),
                 piece.count, weight);
    }
  }

  // Drops what belongs to another generation.
  void drop_void(std::vector<RoundPtr>& abandoned) REVERIE_REQUIRES(mutex_) {
    if (core_.key() == key_) return;
    key_ = core_.key();
    for (auto& [slot, round] : rounds_) abandoned.push_back(std::move(round));
    rounds_.clear();
    results_.clear();
    sums_.reset();
    waiting_.reset();
  }

  void look_at_rounds(TimePoint now) REVERIE_REQUIRES(mutex_) {
    for (auto place = rounds_.begin(); place != rounds_.end();) {
      const RoundPtr round = place->second;
      if (!round->is_done()) {
        ++place;
        continue;
      }
      const std::uint64_t slot = place->first;
      place = rounds_.erase(place);
      const Status status = round->wait(TimePoint{});
      AccumulatorCore::Counts totals;
      if (status.ok()) {
        totals = counts_of(*round);
        results_.emplace(slot, round);
      }
      core_.on_round_ended(key_, slot, status, totals, now);
      if (core_.key() != key_) return;
    }
    results_.erase(results_.begin(), results_.lower_bound(core_.first_kept_slot()));
  }

  static AccumulatorCore::Counts counts_of(const GroupRound& round) {
    std::int64_t counts[kCounts];
    round.layout().unload(0, round.reduced()->bytes(), reinterpret_cast<std::byte*>(counts));
    return {counts[0], counts[1], counts[2]};
  }

  std::optional<Sum> take_sum(TimePoint now) REVERIE_REQUIRES(mutex_) {
    const std::optional<AccumulatorCore::Taken> taken = core_.take_result(now);
    if (!taken) return std::nullopt;
    auto found = results_.extract(taken->slot);
    REVERIE_CHECK(!found.empty());
    return Sum{std::move(found.mapped()), taken->totals};
  }

  // Whether the timers' thread begins the next round. To zero a large sum takes long, and messages
  // are handled on the thread that keeps the peer alive.
  bool is_left_to_timers(TimePoint now) const REVERIE_REQUIRES(mutex_) {
    return is_large_ && !timers_.is_own_thread() && !is_adding_ && !sums_ && !waiting_ &&
           core_.has_round_to_begin(now);
  }

  std::optional<Job> next_job(TimePoint now) REVERIE_REQUIRES(mutex_) {
    if (is_adding_) return std::nullopt;
    std::optional<AccumulatorCore::Begin> begin = core_.round_to_begin(now);
    if (!begin) return std::nullopt;
    Job job{std::move(*begin), core_.member_count(), {}};
    job.sums = std::exchange(job.begin.is_again ? waiting_ : sums_, std::nullopt);
    return job;
  }

  void begin(Job& job) {
    const AccumulatorCore::Begin& what = job.begin;
    Status status;
    if (!job.sums) {
      Result<SumSpace> made = allocate(what.key.membership, job.members);
      status = made.status();
      if (status.ok()) {
        std::memset(made->bytes().data(), 0, made->bytes().size());
        job.sums = std::move(*made);
      }
    }
    RoundPtr round;
    if (status.ok()) {
      const std::int64_t counts[kCounts] = {what.mine.contributions, what.mine.skipped,
                                            what.mine.samples};
      std::memcpy(job.sums->bytes().data(), counts, sizeof(counts));
      Result<RoundPtr> begun = group_->sum_in(what.key.membership, what.round, *job.sums);
      status = begun.status();
      if (status.ok()) round = std::move(*begun);
    }
    {
      MutexLock lock(mutex_);
      if (core_.key() == what.key && key_ == what.key) {
        core_.on_begun(what, status, clock_.now());
        if (status.code() == StatusCode::kAlreadyExists) waiting_ = std::move(job.sums);
        if (round) rounds_.emplace(what.slot, std::exchange(round, nullptr));
      }
    }
    if (round) round->cancel();
  }

  void send(const PeerTurn& peer, AccumulatorCore::Outgoing out) {
    const std::uint64_t ticket = out.ticket;
    const auto on_answered = [weak = weak_from_this(), ticket](const CallResult& result) {
      const auto impl = weak.lock();
      if (!impl) return;
      const Payload* const answer =
          result.kind == CallResult::Kind::kAnswer ? &result.payload : nullptr;
      impl->call_core(
          [&](AccumulatorCore& core, TimePoint now) { core.on_answered(ticket, answer, now); });
    };
    const Result<CallId> called =
        peer->call(out.peer, function_, std::move(out.payload), {out.deadline, false}, on_answered);
    if (!called.ok()) on_answered({CallResult::Kind::kFailed, called.status(), {}, {}, {}});
  }

  const ForkGuard fork_guard_;
  Clock& clock_ = Clock::system();
  PeerTurns turns_;
  Group* const group_;  // used within turns and calls of the program only
  const std::string function_;
  std::atomic<bool> is_closing_{false};
  const std::vector<ReduceLeaf> leaves_;
  const bool is_large_;  // the gradients together
  mutable Mutex mutex_;
  std::shared_ptr<const ReduceLayout> layout_ REVERIE_GUARDED_BY(mutex_);
  std::size_t layout_members_ REVERIE_GUARDED_BY(mutex_) = 0;
  AccumulatorCore core_ REVERIE_GUARDED_BY(mutex_);
  AccumulatorKey key_ REVERIE_GUARDED_BY(mutex_);  // the key of the members below
  std::optional<SumSpace> sums_ REVERIE_GUARDED_BY(mutex_);
  bool is_adding_ REVERIE_GUARDED_BY(mutex_) = false;
  std::optional<AccumulatorCore::State> uncopied_ REVERIE_GUARDED_BY(mutex_);
  std::optional<SumSpace> waiting_ REVERIE_GUARDED_BY(mutex_);  // its round could not begin
  std::map<std::uint64_t, RoundPtr> rounds_ REVERIE_GUARDED_BY(mutex_);   // in progress
  std::map<std::uint64_t, RoundPtr> results_ REVERIE_GUARDED_BY(mutex_);  // not taken yet
  TimerQueue timers_;
  Alarm alarm_;
};

Accumulator::Accumulator(std::shared_ptr<Peer> peer, std::shared_ptr<Group> group,
                         std::shared_ptr<Impl> impl, std::uint64_t listener)
    : peer_(std::move(peer)),
      group_(std::move(group)),
      impl_(std::move(impl)),
      listener_(listener) {}

Result<std::unique_ptr<Accumulator>> Accumulator::make(std::shared_ptr<Peer> peer,
                                                       std::shared_ptr<Group> group,
                                                       const Options& options) {
  REVERIE_RETURN_IF_ERROR(peer->check_open());
  AccumulatorCore::Options core;
  core.name = peer->name();
  core.title = options.name;
  core.function = format("reverie.accumulator.{}::{}", group->name(), options.name);
  if (core.function.size() + kRoundNameRest > kRoundNameMax) {
    const std::size_t names = group->name().size() + options.name.size();
    return invalid_argument(
        "the names of the group and the accumulator have {} bytes together; they may have {}",
        names, kRoundNameMax - kRoundNameRest - core.function.size() + names);
  }
  core.average = options.average;
  core.signature = options.signature;
  core.lineage = random_seed();
  std::size_t all_bytes = 1;
  for (const ReduceLeaf& leaf : options.gradients) {
    REVERIE_RETURN_IF_ERROR(check_reducible(ReduceOp::kSum, leaf.dtype).with_context(leaf.name));
    all_bytes += leaf_bytes(leaf);
  }
  core.kept_max = std::clamp(kKeptBytesMax / all_bytes, kKeptMin, kKeptMax);
  const std::string function = core.function;
  auto impl = std::make_shared<Impl>(peer.get(), group.get(), std::move(core), options.gradients,
                                     all_bytes > kZeroedBytesMax);
  const std::weak_ptr<Impl> weak = impl;
  const auto handle = [weak, answerer = peer->answerer()](Request request) {
    if (const auto made = weak.lock()) return made->on_request(std::move(request), answerer);
    answerer.fail(request.id, {StatusCode::kUnavailable, "", "the accumulator is closed", ""});
  };
  const Status defined = peer->define(function, handle);
  if (!defined.ok()) {
    impl->close();
    if (defined.code() != StatusCode::kAlreadyExists) return defined;
    return already_exists(
        "peer '{}' has an accumulator '{}' in group '{}'; use that one, or close it first",
        peer->name(), options.name, group->name());
  }
  const std::uint64_t listener = group->add_listener([weak] {
    if (const auto accumulator = weak.lock()) accumulator->turn([](TimePoint) {});
  });
  return std::unique_ptr<Accumulator>(
      new Accumulator(std::move(peer), std::move(group), std::move(impl), listener));
}

Accumulator::~Accumulator() {
  close();
  // The threads that wait in it do not exist in a forked child, which destroys nothing.
  if (!impl_->check_fork().ok()) leave_to_parent(impl_);
}

Result<Accumulator::View> Accumulator::update(bool is_busy) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  group_->advance();
  return impl_->update(is_busy);
}

Status Accumulator::contribute(std::uint64_t samples, std::span<const ReduceLeaf> gradients,
                               std::uint64_t weight) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->contribute(samples, gradients, weight);
}

Status Accumulator::give_state(const Payload& value, bool to_all) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  Status status;
  impl_->call_core(
      [&](AccumulatorCore& core, TimePoint now) { status = core.give_state(value, to_all, now); });
  return status;
}

void Accumulator::set_version(std::uint64_t version) {
  if (!impl_->check_fork().ok()) return;
  impl_->call_core(
      [&](AccumulatorCore& core, TimePoint now) { core.set_version(version, random_seed(), now); });
}

void Accumulator::set_virtual_batch_size(std::uint64_t size) {
  if (!impl_->check_fork().ok()) return;
  impl_->call_core(
      [&](AccumulatorCore& core, TimePoint now) { core.set_virtual_batch_size(size, now); });
}

void Accumulator::set_parallel(std::size_t count) {
  if (!impl_->check_fork().ok()) return;
  impl_->call_core([&](AccumulatorCore& core, TimePoint now) { core.set_parallel(count, now); });
}

std::string Accumulator::why_waiting() const {
  return impl_->check_fork().ok() ? impl_->why_waiting() : std::string();
}

void Accumulator::close() {
  if (!impl_->check_fork().ok()) return;
  if (!impl_->begin_close()) return;
  group_->remove_listener(listener_);
  (void)peer_->undefine(impl_->function());
  impl_->close();
}

}  // namespace reverie
