// Tested in tests/sim/groups_sim_test.cc.
// GroupCore: how members of one membership agree on whether arrays go through shared memory.
//
//     member                                  the first member
//     SHARE asks, my host                -->  waits until all have asked: which host has whom
//                                        <--  LEAD, to the first of each host
//     makes the memory of its host
//     SHARE leads, where it is           -->
//                                        <--  OFFER, to the others of the host
//     maps it
//     SHARE sees, or does not            -->  waits until all have mapped it, or one could not
//                                        <--  SHARED, or CALLS
//
// The first member leads its own host. One that is alone on its host has nothing to make.
#include <algorithm>
#include <limits>
#include <utility>

#include "reverie/group/group_core.h"

namespace reverie {
namespace {

constexpr Duration kShareRetry = std::chrono::milliseconds(20);
constexpr std::size_t kNoBound = std::numeric_limits<std::int64_t>::max();

}  // namespace

void GroupCore::reset_sharing() {
  for (const auto& [member, ask] : std::exchange(asks_, {})) answer(ask.second);
  for (const auto& [member, request] : std::exchange(offer_waiters_, {})) answer(request);
  for (const InboundId request : std::exchange(share_waiters_, {})) answer(request);
  sharing_ = Sharing::kUnknown;
  share_bytes_max_ = 0;
  is_share_requested_ = false;
  share_retry_at_ = TimePoint::max();
  hosts_.reset();
  offers_.clear();
  seen_by_.clear();
}

// Begins the agreement, unless it has begun.
void GroupCore::agree_on_sharing(TimePoint now) {
  if (sharing_ != Sharing::kUnknown || is_share_requested_) return;
  is_share_requested_ = true;
  if (member_.index() == 0) {
    if (!source_.make) return decide_sharing(Sharing::kCalls, now);
    return look_at_hosts(now);
  }
  tell_first({source_.make ? ShareStep::kAsks : ShareStep::kDoesNot, source_.host, {}, 0});
}

void GroupCore::tell_first(const ShareQuery& ask) {
  RoundMessage message;
  message.kind = RoundMessageKind::kShare;
  message.membership = current_.id;
  message.head = encode(ask);
  Sent sent;
  sent.what = Sent::What::kShare;
  sent.membership = current_.id;
  sent.to = current_.members.front().name;
  const std::string to = sent.to;
  call(to, function_, encode(message), std::move(sent));
}

// --- The first member.

// Once all have told their hosts.
void GroupCore::look_at_hosts(TimePoint now) {
  if (asks_.size() + 1 < current_.members.size()) return;
  std::vector<std::string> names = {source_.host};
  for (const auto& [member, ask] : asks_) names.push_back(ask.first);
  hosts_ = Hosts::of(names);
  const bool is_shared = hosts_->count() < names.size() &&
                         hosts_->largest() <= ShareSegment::kMembersMax &&
                         std::find(names.begin(), names.end(), std::string()) == names.end();
  if (!is_shared) return decide_sharing(Sharing::kCalls, now);
  share_bytes_max_ = kNoBound;
  if (host_size() > 1) {
    ShareOffer offer;
    const auto bytes_max = source_.make(current_.id, host_size(), offer);
    if (!bytes_max) return decide_sharing(Sharing::kCalls, now);
    share_bytes_max_ = *bytes_max;
    offers_.emplace(0, offer);
  }
  for (const auto& [member, ask] : std::exchange(asks_, {})) show_memory(member, ask.second);
}

void GroupCore::show_memory(std::size_t member, InboundId request) {
  ShareWord word;
  word.hosts = hosts_->numbers();
  word.kind = ShareWord::Kind::kLead;
  if (!hosts_->is_leader(member)) {
    const auto offer = offers_.find(hosts_->host_of(member));
    if (offer == offers_.end()) {
      offer_waiters_.insert_or_assign(member, request);
      return;
    }
    word.kind = ShareWord::Kind::kOffer;
    word.offer = offer->second;
  }
  answer(request, encode(word));
}

ShareWord GroupCore::decided_word() const {
  ShareWord word;
  word.kind = sharing_ == Sharing::kShared ? ShareWord::Kind::kShared : ShareWord::Kind::kCalls;
  word.bytes_max = share_bytes_max_;
  return word;
}

void GroupCore::on_share_request(const RoundMessage& message, std::size_t from, InboundId request,
                                 TimePoint now) {
  if (member_.index() > 0) {
    fail(request, StatusCode::kFailedPrecondition, "",
         format("'{}' is not the first member", member_.options().self.name));
    return;
  }
  const Result<ShareQuery> ask = decode_share_query(message.head);
  if (!ask.ok()) return fail(request, ask.status().code(), "", ask.status().message());
  agree_on_sharing(now);
  if (sharing_ != Sharing::kUnknown) return answer(request, encode(decided_word()));
  if (ask->step == ShareStep::kAsks) {
    if (hosts_) return show_memory(from, request);
    const auto before = asks_.find(from);
    if (before != asks_.end()) answer(before->second.second);
    asks_.insert_or_assign(from, std::pair(ask->host, request));
    return look_at_hosts(now);
  }
  share_waiters_.push_back(request);
  const bool leads = ask->step == ShareStep::kLeads && hosts_ && hosts_->is_leader(from);
  const bool sees = leads || (ask->step == ShareStep::kSees && hosts_);
  if (!sees) return decide_sharing(Sharing::kCalls, now);
  if (leads) {
    share_bytes_max_ = std::min(share_bytes_max_, static_cast<std::size_t>(ask->bytes_max));
    offers_.insert_or_assign(hosts_->host_of(from), ask->offer);
    for (const auto& [member, waiter] : std::exchange(offer_waiters_, {})) {
      show_memory(member, waiter);
    }
  }
  seen_by_.insert(from);
  if (seen_by_.size() + 1 == current_.members.size()) decide_sharing(Sharing::kShared, now);
}

// --- The others.

void GroupCore::on_share_answer(const CallResult& result, TimePoint now) {
  if (sharing_ != Sharing::kUnknown) return;
  const Result<ShareWord> word = result.kind == CallResult::Kind::kAnswer
                                     ? decode_share_word(result.payload)
                                     : Result<ShareWord>(result.status);
  if (!word.ok()) {
    // The first member is not in this membership yet, or cannot be reached: then a new membership
    // follows.
    share_retry_at_ = now + kShareRetry;
    return;
  }
  switch (word->kind) {
    case ShareWord::Kind::kShared:
      // Only a member that has mapped the memory is told to use it.
      if (share_bytes_max_ == 0) return decide_sharing(Sharing::kCalls, now);
      share_bytes_max_ = std::min(share_bytes_max_, static_cast<std::size_t>(word->bytes_max));
      return decide_sharing(Sharing::kShared, now);
    case ShareWord::Kind::kCalls:
      return decide_sharing(Sharing::kCalls, now);
    case ShareWord::Kind::kLead:
    case ShareWord::Kind::kOffer:
      return tell_first(looked_at(*word));
  }
}

// Makes the memory of the host, or looks at what its leader has made.
ShareQuery GroupCore::looked_at(const ShareWord& word) {
  ShareQuery ask;
  ask.step = ShareStep::kSees;
  if (share_bytes_max_ > 0) {  // it has looked before, and its answer was lost
    if (offers_.empty()) return ask;
    return {ShareStep::kLeads, {}, offers_.begin()->second, share_bytes_max_};
  }
  hosts_ = Hosts::from_numbers(word.hosts);
  const bool is_known = hosts_ && hosts_->member_count() == current_.members.size() &&
                        hosts_->largest() <= ShareSegment::kMembersMax &&
                        leads_host() == (word.kind == ShareWord::Kind::kLead);
  if (!is_known) {
    hosts_.reset();
  } else if (host_size() == 1) {
    share_bytes_max_ = kNoBound;
  } else if (leads_host()) {
    ask.step = ShareStep::kLeads;
    share_bytes_max_ = source_.make(current_.id, host_size(), ask.offer).value_or(0);
    ask.bytes_max = share_bytes_max_;
    if (share_bytes_max_ > 0) offers_.emplace(host(), ask.offer);
  } else {
    const std::size_t place = hosts_->place_of(member_.index());
    share_bytes_max_ = source_.open(current_.id, place, host_size(), word.offer).value_or(0);
  }
  if (share_bytes_max_ == 0) ask.step = ShareStep::kDoesNot;
  return ask;
}

// --- The decision.

void GroupCore::decide_sharing(Sharing sharing, TimePoint now) {
  sharing_ = sharing;
  std::vector<InboundId> waiters = std::exchange(share_waiters_, {});
  for (const auto& [member, ask] : std::exchange(asks_, {})) waiters.push_back(ask.second);
  for (const auto& [member, request] : std::exchange(offer_waiters_, {})) {
    waiters.push_back(request);
  }
  for (const InboundId request : waiters) answer(request, encode(decided_word()));
  std::vector<RoundKey> held;
  for (const auto& [key, running] : running_) {
    if (running.path == Path::kHeld) held.push_back(key);
  }
  for (const RoundKey& key : held) {
    const auto still = running_.find(key);
    if (still != running_.end() && still->second.path == Path::kHeld) start(key, now);
  }
}

}  // namespace reverie
