// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/group_core.h"

#include <algorithm>
#include <utility>

#include "reverie/base/random.h"
#include "reverie/reduce/reduce_layout.h"

namespace reverie {
namespace {

constexpr std::size_t kPastMax = 64;
constexpr std::size_t kFailedMax = 256;
constexpr Duration kFutureKept = std::chrono::seconds(10);
// How long a round lasts before its members are asked about it, and between such questions.
constexpr Duration kAskAfter = std::chrono::milliseconds(500);
constexpr Duration kAskAgain = std::chrono::seconds(1);
constexpr Duration kAskShared = std::chrono::seconds(5);  // longer than a dead peer is sought

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  return text;
}

}  // namespace

std::string group_function(const std::string& group) {
  return "reverie.group." + group;
}

GroupCore::GroupCore(MemberCore::Options options, ShareSource source, std::size_t early_bytes_max)
    : member_(std::move(options)),
      function_(group_function(member_.options().group)),
      source_(std::move(source)),
      early_bytes_max_(early_bytes_max) {}

// --- Calls of the program.

void GroupCore::join(TimePoint now) {
  member_.join(now);
  after_member();
}

void GroupCore::advance(TimePoint now) {
  member_.advance(now);
  after_member();
}

void GroupCore::leave(TimePoint) {
  member_.leave();
  after_member();
}

void GroupCore::set_sort_order(std::int64_t sort_order, TimePoint now) {
  member_.set_sort_order(sort_order, now);
  after_member();
}

void GroupCore::set_stall_timeout(Duration timeout, TimePoint now) {
  member_.set_stall_timeout(timeout, now);
}

Result<RoundId> GroupCore::begin(const std::string& name, std::uint64_t membership,
                                 std::shared_ptr<Round> round, TimePoint deadline, TimePoint now) {
  if (name.empty() || name.size() > kRoundNameMax) {
    return invalid_argument("the name of a round has {} bytes; it must have 1 to {}", name.size(),
                            kRoundNameMax);
  }
  member_.advance(now);
  after_member();
  if (current_.epoch == 0) {
    const std::string why = member_.why_not_watched(now);
    return failed_precondition("group '{}' has no members yet{}{}; wait until it has",
                               member_.options().group, why.empty() ? "" : ": ", why);
  }
  if (membership != current_.id) return unavailable("the membership has changed");
  const std::uint64_t count = begun_[name];
  if (count > 0 && running_.contains({name, count - 1})) {
    return already_exists("round '{}' is under way; wait for its result, or use another name",
                          name);
  }
  const RoundKey key{name, count};
  begun_[name] = count + 1;
  const RoundId id = next_round_++;
  if (const auto aborted = aborted_.find(key); aborted != aborted_.end()) {
    Ended ended = std::move(aborted->second);
    ended.id = id;
    note_failed(key, ended.status, ended.lost);
    aborted_.erase(aborted);
    (void)take_early(key);
    ended_.push_back(std::move(ended));
    return id;
  }
  Running& running = running_[key];
  running = {id, std::move(round), now, deadline, now + kAskAfter, {}, Path::kHeld};
  const bool can_share = running.round->share_bytes() > 0 && current_.members.size() > 1;
  if (can_share && sharing_ == Sharing::kUnknown) {
    agree_on_sharing(now);
    return id;
  }
  start(key, now);
  return id;
}

// Starts the round: through shared memory, or over calls.
void GroupCore::start(const RoundKey& key, TimePoint now) {
  Running& running = running_.at(key);
  running.path = Path::kCalls;
  if (!is_shared(running.round->share_bytes())) return start_over_calls(key, now);
  if (is_two_level()) {
    running.path = Path::kToLeader;
    if (host_size() == 1) return start_across(key, now);
    return share(key, running, SharedStep::kToFirst);
  }
  running.path = Path::kShared;
  share(key, running, SharedStep::kAll);
  if (!early_.contains(key)) return;
  // The early part is of another kind of round: ask its sender what it reduces.
  const std::string caller = early_.at(key).front().caller;
  (void)take_early(key);
  compare(key, running.id, caller, now);
}

void GroupCore::share(const RoundKey& key, const Running& running, SharedStep step) {
  const auto path = static_cast<std::uint64_t>(step);
  const std::uint64_t hash = mix64(text_hash(key.name) ^ mix64(key.count) ^ (path << 56u));
  shared_.push_back({running.id, std::max<std::uint64_t>(hash, 1), step});
}

void GroupCore::start_across(const RoundKey& key, TimePoint now) {
  Running& running = running_.at(key);
  running.path = Path::kAcross;
  running.round->stand_for(host(), hosts_->count());
  start_over_calls(key, now);
}

void GroupCore::start_from_leader(const RoundKey& key) {
  Running& running = running_.at(key);
  running.path = Path::kFromLeader;
  share(key, running, SharedStep::kFromFirst);
}

void GroupCore::start_over_calls(const RoundKey& key, TimePoint now) {
  Running& running = running_.at(key);
  const RoundId id = running.id;
  std::vector<RoundPart> parts;
  running.round->start(parts);
  send_parts(key, id, *running.round, std::move(parts));
  for (Early& kept : take_early(key)) {
    const auto still = running_.find(key);
    if (still == running_.end()) break;
    if (kept.message.signature != still->second.round->signature_hash()) {
      // Its sender was told that the part was accepted. Ask it what it reduces; then the round
      // ends on all members.
      compare(key, id, kept.caller, now);
      return;
    }
    take(still->second, key, kept.from, kept.message, std::move(kept.payload), {});
  }
  end_if_done(key);
}

// What was sent before the round took it; it is kept no longer.
std::vector<GroupCore::Early> GroupCore::take_early(const RoundKey& key) {
  auto early = early_.extract(key);
  if (early.empty()) return {};
  for (const Early& kept : early.mapped()) early_bytes_ -= kept.size_bytes;
  return std::move(early.mapped());
}

void GroupCore::on_shared(RoundId round, const Status& status,
                          std::optional<std::size_t> differs_with, TimePoint now) {
  const auto place = std::find_if(running_.begin(), running_.end(), [round](const auto& running) {
    return running.second.id == round;
  });
  if (place == running_.end()) return;
  const RoundKey key = place->first;
  if (differs_with) {
    const std::size_t other = hosts_->members_of(host())[*differs_with];
    return compare(key, round, current_.members[other].name, now);
  }
  if (!status.ok()) return end(key, status, {}, /*notifies_others=*/true);
  if (place->second.path == Path::kToLeader) {
    return leads_host() ? start_across(key, now) : start_from_leader(key);
  }
  ended_.push_back({round, {}, {}});
  running_.erase(place);
  (void)take_early(key);
}

void GroupCore::give_up(RoundId round, const Status& why, TimePoint) {
  for (const auto& [key, running] : running_) {
    if (running.id != round) continue;
    const RoundKey given_up = key;
    end(given_up, why, {}, /*notifies_others=*/true);
    return;
  }
}

// --- Membership.

void GroupCore::after_member() {
  for (MemberCore::Call& asked : member_.take_calls()) {
    Sent sent;
    sent.what = Sent::What::kMember;
    sent.member_ticket = asked.ticket;
    call(member_.options().broker, kBrokerFunction, std::move(asked.payload), std::move(sent));
  }
  if (member_.membership().id != current_.id) enter(member_.membership());
}

// Why rounds of this member end with its membership.
Status GroupCore::why_no_member() const {
  const MemberCore::Options& options = member_.options();
  if (!member_.refusal().ok()) {
    return failed_precondition("broker '{}' refuses this member of group '{}': {}", options.broker,
                               options.group, member_.refusal().message());
  }
  if (member_.is_stalled()) {
    return unavailable(
        "this program did not advance for {:.1f} s, and left group '{}'; wait for its members, and "
        "begin the round again",
        to_seconds(options.stall_timeout), options.group);
  }
  return cancelled("this member has left group '{}'", options.group);
}

void GroupCore::enter(const Membership& next) {
  const std::vector<std::string> lost =
      next.epoch == 0 ? std::vector<std::string>{} : current_.lost_in(next);
  Status why;
  if (next.epoch == 0) {
    why = why_no_member();
  } else if (!lost.empty()) {
    why = unavailable("group '{}' lost {}; begin the round again with those that are left",
                      member_.options().group, listed(lost));
  } else {
    why = unavailable("group '{}' has changed: {} joined; begin the round again",
                      member_.options().group, listed(next.lost_in(current_)));
  }
  std::vector<RoundKey> keys;
  for (const auto& [key, running] : running_) keys.push_back(key);
  for (const RoundKey& key : keys) end(key, why, lost, /*notifies_others=*/false);
  if (current_.epoch > 0) past_.push_back(current_.id);
  if (past_.size() > kPastMax) past_.pop_front();
  begun_.clear();
  aborted_.clear();
  failed_.clear();
  for (const auto& [key, kept] : early_) {
    for (const Early& one : kept) early_bytes_ -= one.size_bytes;
  }
  early_.clear();
  reset_sharing();
  current_ = next;
  if (auto node = futures_.extract(current_.id)) {
    for (Early& kept : node.mapped()) {
      const auto from = current_.index_of(kept.caller);
      early_bytes_ -= kept.size_bytes;
      if (!from) continue;
      if (kept.message.kind == RoundMessageKind::kAbort) {
        on_abort(kept.message);
        continue;
      }
      kept.from = *from;
      early_bytes_ += kept.size_bytes;
      early_[kept.message.round].push_back(std::move(kept));
    }
  }
}

bool GroupCore::is_past(std::uint64_t membership) const {
  return std::find(past_.begin(), past_.end(), membership) != past_.end();
}

// --- Ends.

void GroupCore::end_if_done(const RoundKey& key) {
  const auto running = running_.find(key);
  if (running == running_.end() || !running->second.is_over_calls() ||
      !running->second.round->is_done()) {
    return;
  }
  if (running->second.path == Path::kAcross && host_size() > 1) return start_from_leader(key);
  ended_.push_back({running->second.id, {}, {}});
  running_.erase(running);
}

void GroupCore::note_failed(const RoundKey& key, const Status& status,
                            const std::vector<std::string>& lost) {
  failed_.push_back({key, status, lost.empty() ? std::string() : lost.front()});
  if (failed_.size() > kFailedMax) failed_.pop_front();
}

void GroupCore::end(const RoundKey& key, const Status& status, const std::vector<std::string>& lost,
                    bool notifies_others) {
  const auto running = running_.find(key);
  if (running == running_.end()) return;
  ended_.push_back({running->second.id, status, lost});
  running_.erase(running);
  (void)take_early(key);
  note_failed(key, status, lost);
  if (!notifies_others) return;
  for (std::size_t i = 0; i < current_.members.size(); ++i) {
    if (i == member_.index()) continue;
    abort_on(current_.members[i].name, key, status, lost.empty() ? std::string() : lost.front());
  }
}

void GroupCore::abort_on(const std::string& member, const RoundKey& key, const Status& status,
                         const std::string& lost) {
  RoundMessage message;
  message.kind = RoundMessageKind::kAbort;
  message.membership = current_.id;
  message.round = key;
  message.status = status;
  message.lost = lost;
  Sent sent;
  sent.round = key;
  sent.to = member;
  call(member, function_, encode(message), std::move(sent));
}

// --- Time.

void GroupCore::ask(const RoundKey& key, Running& running, TimePoint now) {
  running.next_ask = now + kAskAgain;
  RoundMessage message;
  message.kind = RoundMessageKind::kAsk;
  message.membership = current_.id;
  message.round = key;
  // A round in shared memory, or one that is held, sends nothing else: this question detects
  // members with other arrays or another kind of round, or members that cannot be reached.
  message.part = running.is_asked_about() ? 1 : 0;
  const TimePoint until = now + (running.is_asked_about() ? kAskShared : kAskAgain);
  for (std::size_t i = 0; i < current_.members.size(); ++i) {
    const std::string& name = current_.members[i].name;
    if (i == member_.index()) continue;
    Sent sent;
    sent.what = Sent::What::kAsk;
    sent.round = key;
    sent.id = running.id;
    sent.to = name;
    call(name, function_, encode(message), std::move(sent), until);
  }
}

bool GroupCore::needs(const Running& running, const std::string& member) const {
  if (running.path == Path::kCalls) return false;
  // Until it is known how arrays go, the first member waits for all, and all wait for it.
  if (running.path != Path::kHeld || member_.index() == 0) return true;
  return member == current_.members.front().name;
}

void GroupCore::tick(TimePoint now) {
  member_.tick(now);
  after_member();
  if (share_retry_at_ <= now) {
    share_retry_at_ = TimePoint::max();
    is_share_requested_ = false;
    agree_on_sharing(now);
  }
  std::vector<RoundKey> late;
  for (auto& [key, running] : running_) {
    if (running.deadline <= now) {
      late.push_back(key);
    } else if (running.next_ask <= now) {
      ask(key, running, now);
    }
  }
  for (const RoundKey& key : late) {
    const std::string why = why_waiting(now);
    end(key,
        deadline_exceeded("round '{}' has no result in the time that '{}' gave it; {}", key.name,
                          member_.options().self.name, why),
        {}, /*notifies_others=*/true);
  }
  for (auto place = futures_.begin(); place != futures_.end();) {
    if (place->second.front().came + kFutureKept > now) {
      ++place;
      continue;
    }
    for (const Early& kept : place->second) early_bytes_ -= kept.size_bytes;
    place = futures_.erase(place);
  }
}

TimePoint GroupCore::next_tick() const {
  TimePoint next = std::min(member_.next_tick(), share_retry_at_);
  for (const auto& [key, running] : running_) {
    next = std::min({next, running.deadline, running.next_ask});
  }
  for (const auto& [id, kept] : futures_) next = std::min(next, kept.front().came + kFutureKept);
  return next;
}

std::string GroupCore::why_waiting(TimePoint now) const {
  std::string text = member_.why_not_watched(now);
  for (const auto& [key, running] : running_) {
    std::string waits;
    for (const auto& [name, word] : running.words) {
      if (word.has_begun) continue;
      waits += format("{} '{}', which has not begun it", waits.empty() ? "" : ",", name);
      if (word.still_ms >= 1000) {
        waits += format(" and whose program has stood still for {} s", word.still_ms / 1000);
      }
    }
    text += format("{}round '{}' of {} members is under way for {:.1f} s{}{}",
                   text.empty() ? "" : "; ", key.name, current_.members.size(),
                   to_seconds(now - running.since), waits.empty() ? "" : ": it waits for", waits);
  }
  return text;
}

}  // namespace reverie
