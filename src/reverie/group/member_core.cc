// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/member_core.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(25);
constexpr Duration kPauseMax = std::chrono::milliseconds(500);

// Whether the broker itself has refused this member for good.
bool is_final(const CallResult& result) {
  if (result.kind != CallResult::Kind::kRemoteError) return false;
  const StatusCode code = result.status.code();
  return code == StatusCode::kInvalidArgument || code == StatusCode::kFailedPrecondition ||
         code == StatusCode::kDataLoss;
}

}  // namespace

void MemberCore::watch() {
  BrokerRequest request;
  request.group = options_.group;
  request.self = options_.self;
  request.known = membership_;
  request.wants_word = is_first_watch_ && membership_.epoch > 0;
  watch_ticket_ = next_ticket_++;
  retry_at_ = TimePoint::max();
  calls_.push_back({watch_ticket_, encode(request)});
}

void MemberCore::join(TimePoint now) {
  if (is_joined_) return;
  is_joined_ = true;
  is_first_watch_ = true;
  lost_since_ = now;
  last_advanced_ = now;
  watch();
}

void MemberCore::advance(TimePoint now) {
  last_advanced_ = now;
  if (!std::exchange(is_stalled_, false)) return;
  join(now);
}

void MemberCore::drop_membership() {
  membership_ = {};
  index_ = 0;
}

void MemberCore::leave() {
  is_stalled_ = false;
  if (!std::exchange(is_joined_, false)) return;
  BrokerRequest request;
  request.ask = BrokerRequestKind::kLeave;
  request.group = options_.group;
  request.self = options_.self;
  calls_.push_back({0, encode(request)});
  watch_ticket_ = 0;
  retry_at_ = TimePoint::max();
  drop_membership();
}

void MemberCore::set_sort_order(std::int64_t sort_order, TimePoint now) {
  if (options_.self.sort_order == sort_order) return;
  options_.self.sort_order = sort_order;
  if (is_joined_ && refusal_.ok()) {
    watch();
    tick(now);
  }
}

void MemberCore::set_stall_timeout(Duration timeout, TimePoint now) {
  options_.stall_timeout = timeout;
  last_advanced_ = now;
}

void MemberCore::on_answered(std::uint64_t ticket, const CallResult& result, TimePoint now) {
  if (ticket != watch_ticket_ || ticket == 0) return;  // the answer to an older request
  watch_ticket_ = 0;
  Status why = result.status;
  if (result.kind == CallResult::Kind::kAnswer) {
    Result<Membership> read = decode_membership(result.payload);
    const auto index = read.ok() ? read->index_of(options_.self.name) : std::nullopt;
    if (index && read->members[*index].incarnation == options_.self.incarnation) {
      lost_since_.reset();
      last_error_ = {};
      is_first_watch_ = false;
      pause_ = Duration::zero();
      if (read->id != membership_.id) {
        membership_ = std::move(*read);
        index_ = *index;
      }
      watch();
      return;
    }
    why = read.ok() ? data_loss("'{}' answers with a membership without '{}'", options_.broker,
                                options_.self.name)
                    : read.status();
  } else if (is_final(result)) {
    refusal_ = result.status;
    drop_membership();
    return;
  }
  if (!lost_since_) lost_since_ = now;
  last_error_ = why;
  is_first_watch_ = true;
  pause_ = std::clamp(2 * pause_, kPauseMin, kPauseMax);
  retry_at_ = now + pause_;
}

void MemberCore::tick(TimePoint now) {
  if (!is_joined_ || !refusal_.ok()) return;
  if (options_.stall_timeout < Duration::max() && now - last_advanced_ >= options_.stall_timeout) {
    leave();
    is_stalled_ = true;
    return;
  }
  if (retry_at_ <= now) watch();
}

TimePoint MemberCore::next_tick() const {
  if (!is_joined_ || !refusal_.ok()) return TimePoint::max();
  const TimePoint stall = options_.stall_timeout == Duration::max()
                              ? TimePoint::max()
                              : last_advanced_ + options_.stall_timeout;
  return std::min(retry_at_, stall);
}

std::string MemberCore::why_not_watched(TimePoint now) const {
  if (!refusal_.ok()) {
    return format("broker '{}' refuses this member: {}", options_.broker, refusal_.message());
  }
  if (is_stalled_) {
    return format(
        "this program did not advance for {:.1f} s, and left group '{}'; update() joins it "
        "again",
        to_seconds(now - last_advanced_), options_.group);
  }
  if (!is_joined_) return format("this member has left group '{}'", options_.group);
  if (!lost_since_) return {};
  return format("broker '{}' has not answered for {:.1f} s{}{}", options_.broker,
                to_seconds(now - *lost_since_), last_error_.ok() ? "" : ": ",
                last_error_.message());
}

}  // namespace reverie
