#include "reverie/weights/weights_core.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace reverie {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(50);
// A following peer asks again at least this often, so that its parent keeps it as a child.
constexpr Duration kFollowTime = std::chrono::seconds(3);
// How long to try a peer without a connection.
constexpr Duration kReachTime = std::chrono::milliseconds(2500);
constexpr int kDetoursMax = 8;
// How long an unreachable peer is asked last.
constexpr Duration kFailedTime = std::chrono::seconds(5);
// After this many failures in a row to map its memory, a source counts as on another host.
constexpr int kFailedMapsMax = 3;

bool is_transient(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kNotFound ||
         code == StatusCode::kDeadlineExceeded || code == StatusCode::kCancelled;
}

}  // namespace

WeightsCore::WeightsCore(Options options) : options_(std::move(options)) {}

// --- What this peer wants.

void WeightsCore::publish(HeldVersion version, TimePoint now) {
  version.run = std::max({options_.run, held_.run, run_floor_});
  take(std::move(version), now);
}

WeightsCore::InquiryId WeightsCore::ask(std::uint64_t at_least, bool waits, TimePoint deadline,
                                        TimePoint now) {
  const InquiryId id = ++last_inquiry_;
  if (is_closed_) {
    ended_.push_back({id, cancelled("these weights were closed")});
    return id;
  }
  Inquiry& inquiry = inquiries_[id];
  inquiry.at_least = at_least;
  inquiry.run = held_.run;
  inquiry.waits = waits;
  inquiry.deadline = deadline;
  if (waits && has_for(inquiry.run, at_least)) {
    end(id, {});
    return id;
  }
  begin(inquiry, now);
  advance(id, now);
  return id;
}

void WeightsCore::begin(Inquiry& inquiry, TimePoint now) {
  inquiry.route.clear();
  inquiry.next = 0;
  inquiry.detours = 0;
  inquiry.has_asked_others = false;
  inquiry.retry_at = TimePoint::max();
  if (!parent_.empty()) inquiry.route.push_back(parent_);
  inquiry.route.insert(inquiry.route.end(), options_.sources.begin(), options_.sources.end());
  // Peers that have just failed are asked last.
  std::stable_partition(inquiry.route.begin(), inquiry.route.end(), [&](const std::string& one) {
    const auto failed = failed_.find(one);
    return failed == failed_.end() || failed->second + kFailedTime < now;
  });
}

void WeightsCore::advance(InquiryId id, TimePoint now) {
  Inquiry& inquiry = inquiries_.at(id);
  if (inquiry.is_followed && !has_children(now) && waiters_.empty()) return end(id, {});
  // A peer that has a version already gets an error when its sources are lost.
  const bool may_try_others = !options_.sources.empty() && options_.others &&
                              (inquiry.waits || !held_.about) && !inquiry.has_asked_others &&
                              now < inquiry.deadline;
  if (inquiry.next >= inquiry.route.size() && may_try_others) {
    inquiry.has_asked_others = true;
    for (std::string& other : options_.others()) {
      if (other == options_.self || std::ranges::count(inquiry.route, other) > 0) continue;
      inquiry.route.push_back(std::move(other));
    }
  }
  if (inquiry.next >= inquiry.route.size()) {
    if (inquiry.last.ok()) {
      inquiry.last = unavailable("weights '{}' have no source here; name the peers that have them",
                                 options_.name);
    }
    if (inquiry.is_followed) wait_on(inquiry);
    const bool is_retry =
        inquiry.waits && (is_transient(inquiry.last.code()) || options_.sources.empty());
    if (!is_retry) return end(id, inquiry.last);
    if (now >= inquiry.deadline) return end(id, too_late(inquiry));
    inquiry.retry_at = std::min(now + kRetry, inquiry.deadline);
    return;
  }
  const std::string& to = inquiry.route[inquiry.next];
  WeightsRequest ask;
  ask.at_least = inquiry.at_least;
  ask.run = inquiry.run;
  ask.has_version = inquiry.takes_changes && held_.about != nullptr;
  if (ask.has_version) ask.version = held_.about->version;
  ask.maps = options_.maps && inquiry.maps && failed_maps_[to] < kFailedMapsMax;
  ask.waits = inquiry.waits;
  if (options_.reach) ask.reach = options_.reach();
  ask.host = options_.host;
  ask.refused = inquiry.refused;
  inquiry.ticket = ++last_ticket_;
  calls_[inquiry.ticket] = {id, to};
  Outgoing out;
  out.kind = Outgoing::Kind::kCall;
  out.ticket = inquiry.ticket;
  out.peer = to;
  out.payload = encode(ask);
  out.deadline = inquiry.is_followed ? now + kFollowTime : inquiry.deadline;
  // A call to an unreachable peer waits for it, while others may be reachable.
  const bool has_others = inquiry.route.size() > 1 || may_try_others;
  if (has_others && is_out_of_reach(to)) {
    out.deadline = std::min(out.deadline, now + kReachTime);
  }
  outgoing_.push_back(std::move(out));
}

Status WeightsCore::too_late(const Inquiry& inquiry) const {
  std::string why = inquiry.last.ok() ? "" : ": " + inquiry.last.message();
  const auto call = calls_.find(inquiry.ticket);
  if (call != calls_.end() && is_out_of_reach(call->second.second)) {
    why = format(": '{}' cannot be reached", call->second.second);
  }
  return deadline_exceeded("weights '{}' have no version of {} or above yet{}", options_.name,
                           inquiry.at_least, why);
}

bool WeightsCore::is_out_of_reach(const std::string& peer) const {
  return options_.is_connected && !options_.is_connected(peer);
}

Status WeightsCore::too_late(InquiryId ask) const {
  return too_late(inquiries_.at(ask));
}

void WeightsCore::end(InquiryId id, Status status) {
  const auto inquiry = inquiries_.find(id);
  if (inquiry == inquiries_.end()) return;
  if (inquiry->second.ticket != 0) {
    calls_.erase(inquiry->second.ticket);
    Outgoing out;
    out.kind = Outgoing::Kind::kCancel;
    out.ticket = inquiry->second.ticket;
    outgoing_.push_back(std::move(out));
  }
  if (id == follow_id_) {
    follow_id_ = 0;
  } else {
    ended_.push_back({id, std::move(status)});
  }
  inquiries_.erase(inquiry);
}

void WeightsCore::give_up(InquiryId ask) {
  end(ask, cancelled("given up"));
}

void WeightsCore::close() {
  is_closed_ = true;
  std::vector<InquiryId> all;
  for (const auto& [id, inquiry] : inquiries_) all.push_back(id);
  for (const InquiryId id : all) end(id, cancelled("these weights were closed"));
  for (const Waiter& waiter : std::exchange(waiters_, {})) {
    refuse(waiter.request, unavailable("these weights are no longer served"));
  }
}

// --- Answers.

void WeightsCore::on_answered(std::uint64_t ticket, const CallResult& result, TimePoint now) {
  const auto call = calls_.find(ticket);
  if (call == calls_.end()) return;
  const auto [id, from] = call->second;
  calls_.erase(call);
  Inquiry& inquiry = inquiries_.at(id);
  inquiry.ticket = 0;
  if (result.kind != CallResult::Kind::kAnswer) {
    // If the source waits and has no newer version, that is not its fault.
    const bool is_late = result.status.code() == StatusCode::kDeadlineExceeded;
    if (inquiry.waits && is_late && now >= inquiry.deadline) {
      if (is_out_of_reach(from)) inquiry.last = unavailable("'{}' cannot be reached", from);
      return end(id, too_late(inquiry));
    }
    if (inquiry.waits && is_late && options_.is_connected && options_.is_connected(from)) {
      inquiry.last = Status();
      return advance(id, now);
    }
    return fail_over(id, from, result.status, now);
  }
  Result<WeightsAnswer> answer = decode_weights_answer(result.payload);
  if (!answer.ok()) return fail_over(id, from, answer.status(), now);
  on_answer(id, from, std::move(*answer), result.payload, now);
}

void WeightsCore::fail_over(InquiryId id, const std::string& from, Status why, TimePoint now) {
  Inquiry& inquiry = inquiries_.at(id);
  inquiry.last = std::move(why);
  failed_[from] = now;
  if (from == parent_) {
    parent_.clear();
    inquiry.refused = from;
  }
  inquiry.maps = true;
  inquiry.takes_changes = true;
  ++inquiry.next;
  if (now >= inquiry.deadline) inquiry.next = inquiry.route.size();
  advance(id, now);
}

void WeightsCore::on_answer(InquiryId id, const std::string& from, WeightsAnswer answer,
                            const Payload& payload, TimePoint now) {
  using Kind = WeightsAnswer::Kind;
  Inquiry& inquiry = inquiries_.at(id);
  if (answer.kind == Kind::kElsewhere) {
    if (++inquiry.detours > kDetoursMax) {
      return fail_over(id, from, unavailable("'{}' sends to others without end", from), now);
    }
    inquiry.refused.clear();
    if (answer.peer == options_.self || answer.peer.empty() || children_.contains(answer.peer)) {
      // That peer gets it from this one, so this one needs another source.
      inquiry.refused = answer.peer;
      return advance(id, now);
    }
    parent_ = answer.peer;
    inquiry.route.insert(inquiry.route.begin() + static_cast<std::ptrdiff_t>(inquiry.next),
                         answer.peer);
    return advance(id, now);
  }
  inquiry.refused.clear();
  failed_.erase(from);
  if (from != parent_) parent_.clear();
  if (answer.kind == Kind::kNothing) {
    if (inquiry.is_followed && !inquiry.waits) {
      wait_on(inquiry);
      return advance(id, now);
    }
    if (!inquiry.waits) return end(id, {});
    return fail_over(id, from, unavailable("'{}' does not wait for a version", from), now);
  }
  Result<HeldVersion> got = HeldVersion();
  std::function<Result<HeldVersion>()> copy;
  std::size_t copied_bytes = 0;
  std::function<HeldVersion(HeldVersion)> share;
  if (has_map_requests_) share = options_.share;
  switch (answer.kind) {
    case Kind::kMemory:
      got = options_.map ? options_.map(answer.place, answer.version)
                         : unavailable("'{}' says where its memory lies", from);
      failed_maps_[from] = got.ok() ? 0 : failed_maps_[from] + 1;
      if (!got.ok()) inquiry.maps = false;  // asks again, for it to be sent
      break;
    case Kind::kSent:
      got = held_version(answer.version, std::move(answer.head),
                         payload.bulk.empty() ? BulkPiece{} : payload.bulk.front());
      if (share) copy = [sent = *got] { return Result<HeldVersion>(sent); };
      copied_bytes = payload.bulk_bytes();
      break;
    default:
      if (!held_.about || held_.run != answer.run || held_.about->version != answer.base) {
        got = unavailable("version {} is not here", answer.base);
        inquiry.takes_changes = false;  // then for the complete version
        break;
      }
      auto changes = std::make_shared<WeightsChanges>();
      changes->base = answer.base;
      changes->blocks = std::move(answer.blocks);
      changes->checksum = answer.checksum;
      if (!payload.bulk.empty()) changes->bytes = payload.bulk.front();
      copy = [older = held_.about, version = answer.version, changes] {
        return apply_changes(*older, version, changes);
      };
      copied_bytes = held_.about->value.bulk_bytes();
  }
  if (!copy) {
    if (got.ok()) got->run = answer.run;
    return on_got(id, from, std::move(got), now);
  }
  Outgoing out;
  out.kind = Outgoing::Kind::kCopy;
  out.ticket = inquiry.ticket = ++last_ticket_;
  calls_[inquiry.ticket] = {id, from};
  out.copy = [copy = std::move(copy), share = std::move(share), run = answer.run] {
    Result<HeldVersion> made = copy();
    if (made.ok() && share) made = share(std::move(*made));
    if (made.ok()) made->run = run;
    return made;
  };
  out.copied_bytes = copied_bytes;
  outgoing_.push_back(std::move(out));
}

void WeightsCore::on_copied(std::uint64_t ticket, Result<HeldVersion> made, TimePoint now) {
  const auto call = calls_.find(ticket);
  if (call == calls_.end()) {  // given up, but the version has come
    if (made.ok() && !is_closed_) take(std::move(*made), now);
    return;
  }
  const auto [id, from] = call->second;
  calls_.erase(call);
  Inquiry& inquiry = inquiries_.at(id);
  inquiry.ticket = 0;
  if (!made.ok()) inquiry.takes_changes = false;  // asks again, for the complete version
  on_got(id, from, std::move(made), now);
}

void WeightsCore::on_got(InquiryId id, const std::string& from, Result<HeldVersion> got,
                         TimePoint now) {
  Inquiry& inquiry = inquiries_.at(id);
  if (!got.ok()) {
    inquiry.last = got.status();
    if (++inquiry.detours > kDetoursMax) return fail_over(id, from, got.status(), now);
    return advance(id, now);
  }
  const bool is_next_run = inquiry.run != 0 && got->run > inquiry.run;
  const std::uint64_t version = got->about->version;
  if (version < inquiry.at_least && !is_next_run) {
    return fail_over(
        id, from,
        data_loss("'{}' gives version {} for {} or above", from, version, inquiry.at_least), now);
  }
  end(id, {});
  take(std::move(*got), now);
}

// Keeps the version if it is the newest, and sends it to waiting peers.
void WeightsCore::take(HeldVersion version, TimePoint now) {
  if (held_.about &&
      std::tie(held_.run, held_.about->version) >= std::tie(version.run, version.about->version)) {
    answer_waiters();
    return follow(now);
  }
  held_ = std::move(version);
  std::vector<InquiryId> over;
  for (const auto& [id, inquiry] : inquiries_) {
    if (inquiry.waits && has_for(inquiry.run, inquiry.at_least)) over.push_back(id);
  }
  for (const InquiryId id : over) end(id, {});
  answer_waiters();
  follow(now);
}

// The sources have been asked whether the held version is the newest.
void WeightsCore::wait_on(Inquiry& followed) {
  if (!std::exchange(followed.waits, true)) answer_waiters();
}

// Answers those of the waiting peers that the held version is for.
void WeightsCore::answer_waiters() {
  std::vector<Waiter> waiting;
  for (Waiter& waiter : waiters_) {
    if (has_for(waiter.ask.run, waiter.ask.at_least)) {
      serve(waiter.request, waiter.ask);
    } else if (!waiter.ask.waits) {
      answer(waiter.request, encode(WeightsAnswer{}));
    } else {
      waiting.push_back(std::move(waiter));
    }
  }
  waiters_ = std::move(waiting);
}

void WeightsCore::follow(TimePoint now, bool waits) {
  if (follow_id_ != 0 || is_closed_ || options_.sources.empty()) return;
  if (!has_children(now) && waiters_.empty()) return;
  follow_id_ = ++last_inquiry_;
  Inquiry& inquiry = inquiries_[follow_id_];
  inquiry.at_least = held_.about ? held_.about->version + 1 : 0;
  inquiry.run = held_.run;
  inquiry.waits = waits;
  inquiry.is_followed = true;
  inquiry.deadline = TimePoint::max();
  begin(inquiry, now);
  advance(follow_id_, now);
}

// --- Time.

void WeightsCore::tick(TimePoint now) {
  std::vector<InquiryId> due;
  for (const auto& [id, inquiry] : inquiries_) {
    if (inquiry.retry_at <= now) due.push_back(id);
  }
  for (const InquiryId id : due) {
    Inquiry& inquiry = inquiries_.at(id);
    if (now >= inquiry.deadline) {
      end(id, too_late(inquiry));
      continue;
    }
    begin(inquiry, now);
    advance(id, now);
  }
}

TimePoint WeightsCore::next_tick() const {
  TimePoint next = TimePoint::max();
  for (const auto& [id, inquiry] : inquiries_) next = std::min(next, inquiry.retry_at);
  return next;
}

std::vector<WeightsCore::Outgoing> WeightsCore::take_outgoing() {
  return std::exchange(outgoing_, {});
}

std::vector<WeightsCore::Ended> WeightsCore::take_ended() {
  return std::exchange(ended_, {});
}

}  // namespace reverie
