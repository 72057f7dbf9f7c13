// Tested in tests/sim/accumulator_sim_test.cc.
#include "reverie/accumulator/accumulator_core.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "reverie/base/random.h"

namespace reverie {
namespace {

// A message that was not accepted is resent after kRepeatMin, then after twice as long.
constexpr Duration kRepeatMin = std::chrono::milliseconds(10);
constexpr Duration kRepeatMax = std::chrono::milliseconds(200);
constexpr Duration kAnswerMax = std::chrono::seconds(1);
// Members of a new membership vote unasked; those that have not voted by then are asked to.
constexpr Duration kPokeAfter = std::chrono::milliseconds(200);
constexpr Duration kBeginAgain = std::chrono::milliseconds(5);
// Names of rounds are reused in turn. At least twice as many as rounds in progress.
constexpr std::uint64_t kRoundNames = 64;
static_assert(kRoundNames >= 2 * AccumulatorCore::kParallelMax);

std::uint64_t next_lineage(std::uint64_t lineage, AccumulatorKey key, std::uint64_t slot) {
  return mix64(mix64(mix64(lineage ^ key.membership) ^ key.generation) ^ slot);
}

}  // namespace

// --- The program's.

void AccumulatorCore::advance(TimePoint now) {
  advanced_at_ = now;
  resigned_ = 0;
  if (std::exchange(is_started_, true)) return;
  if (vote_at_ <= now) vote(now);
}

void AccumulatorCore::set_virtual_batch_size(std::uint64_t size, TimePoint now) {
  virtual_batch_size_ = size;
  lead(now);
}

void AccumulatorCore::set_parallel(std::size_t count, TimePoint now) {
  parallel_ = count;
  lead(now);
}

void AccumulatorCore::set_version(std::uint64_t version, std::uint64_t lineage, TimePoint now) {
  version_ = version;
  options_.lineage = lineage;
  if (is_started_ && key_.membership != 0) enter({key_.membership, key_.generation + 1}, now, now);
}

bool AccumulatorCore::wants_gradients() const {
  return !leader_.empty() && has_model_ && open_ - delivered_ < parallel_;
}

void AccumulatorCore::contribute(std::uint64_t samples, TimePoint now) {
  ++own_counts_.contributions;
  own_counts_.samples += static_cast<std::int64_t>(samples);
  report(now);
}

std::optional<AccumulatorCore::Taken> AccumulatorCore::take_result(TimePoint now) {
  if (!has_model_ || kept_.empty() || !kept_.front().is_done) return std::nullopt;
  const Taken taken{kept_.front().slot, kept_.front().totals};
  kept_.pop_front();
  delivered_ = taken.slot + 1;
  ++version_;
  options_.lineage = next_lineage(options_.lineage, key_, taken.slot);
  lead(now);
  return taken;
}

std::optional<AccumulatorCore::State> AccumulatorCore::take_state(TimePoint now) {
  if (!incoming_) return std::nullopt;
  auto [message, state] = std::move(*incoming_);
  incoming_.reset();
  if (has_model_) {
    const bool is_same = message.vote.lineage == options_.lineage && message.slot == delivered_;
    if (!is_same) return std::nullopt;
    return std::move(state);
  }
  if (message.slot < first_kept_slot() || message.slot > open_) {
    need_model(now);  // results that the model lacks were dropped
    return std::nullopt;
  }
  if (message.vote.version < version_) {
    restart(now);  // its program was stalled at the election; it leads the next generation
    return std::nullopt;
  }
  version_ = message.vote.version;
  options_.lineage = message.vote.lineage;
  delivered_ = message.slot;
  while (!kept_.empty() && kept_.front().slot < delivered_) kept_.pop_front();
  has_model_ = true;
  report(now);
  return std::move(state);
}

// --- Generations and their leaders.

void AccumulatorCore::on_membership(const Membership& membership, TimePoint now) {
  if (membership.id == key_.membership) return;
  members_.clear();
  for (const Member& member : membership.members) members_.push_back(member.name);
  restarts_ = 0;
  enter({membership.epoch == 0 ? 0 : membership.id, 0}, now, now);
}

void AccumulatorCore::enter(AccumulatorKey key, TimePoint vote_at, TimePoint now) {
  key_ = key;
  vote_at_ = key.membership == 0 ? TimePoint::max() : vote_at;
  votes_.clear();
  elected_.reset();
  leader_.clear();
  need_ = 0;
  incoming_.reset();
  plan_.clear();
  asked_.clear();
  gave_.clear();
  own_counts_ = {};
  open_ = called_ = delivered_ = 0;
  beginning_.reset();
  kept_.clear();
  reports_.clear();
  pending_messages_.clear();
  tickets_.clear();
  states_.clear();
  if (is_started_ && vote_at_ <= now) vote(now);
}

void AccumulatorCore::restart(TimePoint now) {
  const Duration pause = kRepeatMin * (std::int64_t{1} << std::min<std::size_t>(restarts_, 6));
  ++restarts_;
  enter({key_.membership, key_.generation + 1}, now + pause, now);
  // The other members are notified now.
  if (!is_first()) return;
  AccumulatorMessage message;
  message.kind = AccumulatorMessageKind::kElected;
  for (const std::string& member : members_) {
    if (member != options_.name) put(member, message, now);
  }
}

void AccumulatorCore::vote(TimePoint now) {
  vote_at_ = TimePoint::max();
  if (members_.empty() || !refusal_.ok()) return;
  AccumulatorMessage message;
  message.vote = {options_.name, version_,         options_.lineage,
                  is_still(now), options_.average, options_.signature};
  if (!is_first()) {
    message.kind = AccumulatorMessageKind::kVote;
    put(members_.front(), std::move(message), now);
    return;
  }
  votes_[options_.name] = message.vote;
  message = {};
  message.kind = AccumulatorMessageKind::kElected;
  for (const std::string& member : members_) {
    if (votes_.contains(member)) continue;
    put(member, message, key_.generation == 0 ? now + kPokeAfter : now);
  }
  elect(now);
}

void AccumulatorCore::elect(TimePoint now) {
  if (elected_ || votes_.size() < members_.size()) return;
  std::uint64_t highest = 0;
  for (const auto& [name, vote] : votes_) highest = std::max(highest, vote.version);
  const auto rank = [&](const AccumulatorVote& vote) {
    const bool can_give = !vote.is_still && highest - vote.version <= options_.kept_max;
    return std::make_tuple(can_give, vote.version, vote.name);
  };
  elected_ = std::max_element(votes_.begin(), votes_.end(), [&](const auto& a, const auto& b) {
               return rank(a.second) < rank(b.second);
             })->second;
  AccumulatorMessage message;
  message.kind = AccumulatorMessageKind::kElected;
  message.vote = *elected_;
  for (const std::string& member : members_) {
    if (member != options_.name) put(member, message, now);
  }
  follow(*elected_, now);
}

void AccumulatorCore::follow(const AccumulatorVote& leader, TimePoint now) {
  if (!leader_.empty() || !refusal_.ok()) return;
  if (leader.average != options_.average) {
    refusal_ = invalid_argument("average is '{}' on '{}' and '{}' on '{}'", options_.average,
                                options_.name, leader.average, leader.name);
  }
  const std::vector<std::string>& mine = options_.signature;
  for (std::size_t i = 0; i < mine.size() && refusal_.ok(); ++i) {
    const std::string theirs = i < leader.signature.size() ? leader.signature[i] : "nothing";
    if (theirs == mine[i]) continue;
    refusal_ = invalid_argument("parameters[{}] is {} on '{}' and {} on the leader '{}'", i,
                                mine[i], options_.name, theirs, leader.name);
  }
  if (refusal_.ok() && mine.size() != leader.signature.size()) {
    refusal_ = invalid_argument("'{}' has {} parameters and buffers, and the leader '{}' {}",
                                options_.name, mine.size(), leader.name, leader.signature.size());
  }
  if (!refusal_.ok()) return;
  leader_ = leader.name;
  has_model_ = leader.lineage == options_.lineage;
  if (!has_model_) return need_model(now);
  report(now);
}

void AccumulatorCore::need_model(TimePoint now) {
  has_model_ = false;
  ++need_;
  report(now);
}

// --- Messages.

void AccumulatorCore::put(const std::string& to, AccumulatorMessage message, TimePoint due) {
  message.key = key_;
  const Address address{to, message.kind};
  pending_messages_[address] = {std::move(message), 0, due, kRepeatMin};
}

Result<Payload> AccumulatorCore::on_request(const std::string& caller, Payload payload,
                                            TimePoint now) {
  REVERIE_ASSIGN_OR_RETURN(AccumulatorMessage message, decode_accumulator_message(payload));
  AccumulatorAnswer answer;
  if (message.key.membership == key_.membership && key_.membership != 0) {
    if (std::find(members_.begin(), members_.end(), caller) == members_.end()) {
      return failed_precondition("'{}' is not a member of the group of accumulator '{}'", caller,
                                 options_.title);
    }
    if (message.key.generation > key_.generation) enter(message.key, now, now);
    answer.is_taken = message.key == key_ && take(caller, message, payload, now);
    if (answer.is_taken && message.kind == AccumulatorMessageKind::kReport && is_leader()) {
      // A member whose report fills the round needs no message of its own to learn of it.
      answer.called = called_;
      pending_messages_.erase({caller, AccumulatorMessageKind::kCalled});
    }
  }
  answer.key = key_;
  return encode(answer);
}

bool AccumulatorCore::take(const std::string& caller, AccumulatorMessage& message, Payload& payload,
                           TimePoint now) {
  switch (message.kind) {
    case AccumulatorMessageKind::kVote: {
      if (!is_first() || message.vote.name != caller) return false;
      const auto [known, is_new] = votes_.try_emplace(caller, message.vote);
      if (!is_new && known->second.lineage != message.vote.lineage) {
        // An accumulator made after the one that voted, which knows no round of this generation.
        restart(now);
        return false;
      }
      pending_messages_.erase({caller, AccumulatorMessageKind::kElected});
      if (elected_) {  // the answer may have been lost
        AccumulatorMessage again;
        again.kind = AccumulatorMessageKind::kElected;
        again.vote = *elected_;
        put(caller, std::move(again), now);
        return true;
      }
      elect(now);
      return true;
    }
    case AccumulatorMessageKind::kElected:
      if (caller != members_.front()) return false;
      if (message.vote.name.empty()) {
        if (!leader_.empty()) {  // the first member's accumulator is a new one
          restart(now);
          return false;
        }
        if (is_started_ && vote_at_ == TimePoint::max()) vote(now);  // perhaps again, for a new one
        return true;
      }
      if (!is_started_) return false;
      follow(message.vote, now);
      return true;
    case AccumulatorMessageKind::kReport: {
      Report& known = reports_[caller];
      if (std::tie(message.slot, message.samples) > std::tie(known.slot, known.samples)) {
        known.slot = message.slot;
        known.samples = message.samples;
      }
      plan_.on_report(caller, message.need, message.has_model, now);
      if (is_leader()) ask_for_gifts(now);
      lead(now);
      return true;
    }
    case AccumulatorMessageKind::kCalled:
      if (caller != leader_) return false;
      called_ = std::max(called_, message.slot);
      return true;
    case AccumulatorMessageKind::kGive:
      if (caller != leader_) return false;
      asked_ = std::move(message.gifts);
      return true;
    case AccumulatorMessageKind::kGave:
      if (!is_leader()) return false;
      plan_.on_gifts(message.gifts);
      ask_for_gifts(now);
      return true;
    case AccumulatorMessageKind::kState:
      if (leader_.empty() || message.gifts.size() >= members_.size()) return false;
      on_state(std::move(message), std::move(payload.bulk));
      return true;
  }
  return false;
}

void AccumulatorCore::on_answered(std::uint64_t ticket, const Payload* payload, TimePoint now) {
  AccumulatorAnswer answer;
  if (payload != nullptr) {
    const Result<AccumulatorAnswer> read = decode_accumulator_answer(*payload);
    if (read.ok()) answer = *read;
  }
  if (answer.key.membership == key_.membership && answer.key.generation > key_.generation) {
    enter(answer.key, now, now);
    return;
  }
  if (const auto state = states_.extract(ticket)) {
    if (answer.is_taken) return;
    for (AccumulatorGift& gift : state.mapped()) gift.is_lost = true;
    note_gifts(state.mapped(), now);
    return;
  }
  const auto node = tickets_.extract(ticket);
  if (!node) return;
  if (answer.is_taken && answer.key == key_ && node.mapped().first == leader_) {
    called_ = std::max(called_, answer.called);
  }
  const auto place = pending_messages_.find(node.mapped());
  if (place == pending_messages_.end() || place->second.ticket != ticket) return;
  if (answer.is_taken) {
    pending_messages_.erase(place);
    return;
  }
  PendingMessage& pending = place->second;
  pending.ticket = 0;
  pending.due = now + pending.pause;
  pending.pause = std::min(2 * pending.pause, kRepeatMax);
}

// --- Rounds.

void AccumulatorCore::report(TimePoint now) {
  if (leader_.empty()) return;
  if (is_leader()) return lead(now);
  AccumulatorMessage message;
  message.kind = AccumulatorMessageKind::kReport;
  message.slot = open_;
  message.samples = static_cast<std::uint64_t>(own_counts_.samples);
  message.need = need_;
  message.has_model = has_model_;
  put(leader_, std::move(message), now);
}

bool AccumulatorCore::is_round_full() const {
  auto samples = static_cast<std::uint64_t>(own_counts_.samples);
  for (const auto& [member, report] : reports_) {
    if (report.slot == open_) samples += report.samples;
  }
  return samples >= virtual_batch_size_;
}

void AccumulatorCore::lead(TimePoint now) {
  if (!is_leader() || called_ > open_ || is_kept_full()) return;
  const auto under_way = static_cast<std::size_t>(
      std::count_if(kept_.begin(), kept_.end(), [](const Kept& kept) { return !kept.is_done; }));
  if (under_way >= parallel_ || !is_round_full()) return;
  ++called_;
  AccumulatorMessage message;
  message.kind = AccumulatorMessageKind::kCalled;
  message.slot = called_;
  for (const std::string& member : members_) {
    if (member != options_.name) put(member, message, now);
  }
}

std::optional<AccumulatorCore::Begin> AccumulatorCore::round_to_begin(TimePoint now) {
  if (!has_round_to_begin(now)) return std::nullopt;
  if (beginning_) {
    begin_at_ = TimePoint::max();
    beginning_->is_again = true;
    return beginning_;
  }
  Begin begin;
  begin.key = key_;
  begin.slot = open_;
  begin.round = format("{}/{}/{}", options_.function, key_.generation, open_ % kRoundNames);
  begin.mine = own_counts_;
  begin.mine.skipped = own_counts_.contributions == 0 ? 1 : 0;
  kept_.push_back({open_, false, {}});
  ++open_;
  own_counts_ = {};
  begin_at_ = TimePoint::max();
  beginning_ = begin;
  return begin;
}

void AccumulatorCore::on_begun(const Begin& begin, const Status& status, TimePoint now) {
  if (begin.key != key_ || !beginning_ || beginning_->slot != begin.slot) return;
  if (status.code() == StatusCode::kAlreadyExists) {
    begin_at_ = now + kBeginAgain;
    return;
  }
  beginning_.reset();
  if (!status.ok()) return restart(now);
  lead(now);
}

void AccumulatorCore::on_round_ended(AccumulatorKey key, std::uint64_t slot, const Status& status,
                                     const Counts& totals, TimePoint now) {
  if (key != key_) return;
  if (!status.ok()) return restart(now);
  restarts_ = 0;
  for (Kept& kept : kept_) {
    if (kept.slot != slot) continue;
    kept.is_done = true;
    kept.totals = totals;
  }
  if (is_leader()) return lead(now);
  bool is_behind = false;
  while (kept_.size() > options_.kept_max && kept_.front().is_done) {
    kept_.pop_front();
    is_behind = has_model_;
  }
  if (is_behind) need_model(now);
}

// --- Time.

TimePoint AccumulatorCore::resign_at() const {
  TimePoint at = TimePoint::max();
  if (!is_leader()) return at;
  if (is_kept_full() && called_ <= open_ && is_round_full()) at = advanced_at_ + kPatience;
  const TimePoint waits_since = plan_.waits_since();
  if (waits_since < TimePoint::max()) {
    const Duration patience = kPatience * (1 << std::min(resigned_, 5));
    at = std::min(at, std::max(waits_since, advanced_at_) + patience);
  }
  return at;
}

void AccumulatorCore::tick(TimePoint now) {
  if (is_started_ && vote_at_ <= now) vote(now);
  if (resign_at() <= now) {
    ++resigned_;
    restart(now);
  }
  if (is_leader() && plan_.next_tick() <= now) ask_for_gifts(now);
  for (auto& [address, pending] : pending_messages_) {
    if (pending.ticket != 0 || pending.due > now) continue;
    pending.ticket = next_ticket_++;
    tickets_[pending.ticket] = address;
    outgoing_.push_back({address.first, pending.ticket, now + kAnswerMax, encode(pending.message)});
  }
}

TimePoint AccumulatorCore::next_tick() const {
  TimePoint next = is_started_ ? vote_at_ : TimePoint::max();
  if (beginning_) next = std::min(next, begin_at_);
  next = std::min(next, resign_at());
  if (is_leader()) next = std::min(next, plan_.next_tick());
  for (const auto& [address, pending] : pending_messages_) {
    if (pending.ticket == 0) next = std::min(next, pending.due);
  }
  return next;
}

std::string AccumulatorCore::why_waiting() const {
  if (members_.empty() || !is_started_) return {};
  if (!leader_.empty()) {
    if (has_model_) return {};
    return format("leader '{}' has not given the model of '{}' yet", leader_, options_.title);
  }
  if (!is_first()) {
    return format("'{}' has not said yet which member leads '{}'", members_.front(),
                  options_.title);
  }
  std::string missing;
  for (const std::string& member : members_) {
    if (!votes_.contains(member)) missing += format("{}'{}'", missing.empty() ? "" : ", ", member);
  }
  if (missing.empty()) return {};
  return format("the leader of '{}' is not known before the vote of {}", options_.title, missing);
}

}  // namespace reverie
