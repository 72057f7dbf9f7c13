// Tested in tests/sim/groups_sim_test.cc.
// GroupCore: how members of one membership agree on whether arrays go through shared memory.
//
//     member                                  the first member
//     SHARE asks                         -->  makes the memory
//                                        <--  OFFER where it is; or CALLS: there is no memory
//     maps it
//     SHARE sees, or does not            -->  waits until all have mapped it, or one could not
//                                        <--  SHARED, or CALLS
#include <utility>

#include "reverie/group/group_core.h"

namespace reverie {
namespace {

constexpr Duration kShareRetry = std::chrono::milliseconds(20);

}  // namespace

void GroupCore::reset_sharing() {
  for (const InboundId request : std::exchange(share_waiters_, {})) answer(request);
  sharing_ = Sharing::kUnknown;
  share_bytes_max_ = 0;
  is_share_asked_ = false;
  share_retry_at_ = TimePoint::max();
  offer_.reset();
  seen_by_.clear();
}

// Begins the agreement, unless it has begun.
void GroupCore::agree_on_sharing(TimePoint now) {
  if (sharing_ != Sharing::kUnknown || is_share_asked_) return;
  is_share_asked_ = true;
  if (member_.index() > 0) {
    if (current_.members.size() > ShareSegment::kMembersMax) {
      return decide_sharing(Sharing::kCalls, now);
    }
    return send_share_step(ShareStep::kAsks);
  }
  ShareOffer offer;
  const bool is_small = current_.members.size() <= ShareSegment::kMembersMax;
  const auto bytes_max =
      is_small && source_.make ? source_.make(current_, offer) : std::optional<std::size_t>();
  if (!bytes_max) return decide_sharing(Sharing::kCalls, now);
  share_bytes_max_ = *bytes_max;
  offer_ = offer;
}

void GroupCore::send_share_step(ShareStep step) {
  RoundMessage message;
  message.kind = RoundMessageKind::kShare;
  message.membership = current_.id;
  message.part = static_cast<std::uint64_t>(step);
  Sent sent;
  sent.what = Sent::What::kShare;
  sent.membership = current_.id;
  sent.to = current_.members.front().name;
  const std::string to = sent.to;
  call(to, function_, encode(message), std::move(sent));
}

ShareWord GroupCore::decided_word() const {
  return {sharing_ == Sharing::kShared ? ShareWord::Kind::kShared : ShareWord::Kind::kCalls, {}};
}

void GroupCore::on_share_request(const RoundMessage& message, std::size_t from, InboundId request,
                                 TimePoint now) {
  if (member_.index() > 0) {
    fail(request, StatusCode::kFailedPrecondition, "",
         format("'{}' is not the first member", member_.options().who.name));
    return;
  }
  agree_on_sharing(now);
  if (sharing_ != Sharing::kUnknown) return answer(request, encode(decided_word()));
  switch (static_cast<ShareStep>(message.part)) {
    case ShareStep::kSees:
      share_waiters_.push_back(request);
      seen_by_.insert(from);
      if (seen_by_.size() + 1 == current_.members.size()) decide_sharing(Sharing::kShared, now);
      return;
    case ShareStep::kDoesNot:
      share_waiters_.push_back(request);
      return decide_sharing(Sharing::kCalls, now);
    case ShareStep::kAsks:
      break;
  }
  answer(request, encode(ShareWord{ShareWord::Kind::kOffer, *offer_}));
}

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
      return decide_sharing(share_bytes_max_ > 0 ? Sharing::kShared : Sharing::kCalls, now);
    case ShareWord::Kind::kCalls:
      return decide_sharing(Sharing::kCalls, now);
    case ShareWord::Kind::kOffer:
      break;
  }
  if (share_bytes_max_ == 0 && source_.open) {
    share_bytes_max_ = source_.open(current_, member_.index(), word->offer).value_or(0);
  }
  send_share_step(share_bytes_max_ > 0 ? ShareStep::kSees : ShareStep::kDoesNot);
}

void GroupCore::decide_sharing(Sharing sharing, TimePoint now) {
  sharing_ = sharing;
  for (const InboundId request : std::exchange(share_waiters_, {})) {
    answer(request, encode(decided_word()));
  }
  std::vector<RoundKey> held;
  for (const auto& [key, running] : running_) {
    if (running.is_held) held.push_back(key);
  }
  for (const RoundKey& key : held) {
    const auto still = running_.find(key);
    if (still != running_.end() && still->second.is_held) start(key, now);
  }
}

}  // namespace reverie
