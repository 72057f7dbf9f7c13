#include "reverie/weights/weights_core.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace reverie {
namespace {

constexpr Duration kRetry = std::chrono::milliseconds(50);
// A child that has not asked for this long gives its place to another.
constexpr Duration kChildSilence = std::chrono::seconds(10);
// Versions are followed for a child that has not asked for this long: programs may pull rarely.
constexpr Duration kFollowedSilence = std::chrono::minutes(2);
// A following peer asks again at least this often, so that its parent keeps it as a child.
constexpr Duration kFollowTime = std::chrono::seconds(3);
// How long to try a peer without a connection.
constexpr Duration kReachTime = std::chrono::milliseconds(2500);
constexpr int kDetoursMax = 8;
// How long an unreachable peer is asked last.
constexpr Duration kFailedTime = std::chrono::seconds(5);
// After this many failures in a row to map its memory, a source counts as on another host.
constexpr int kFailedMapsMax = 3;
constexpr std::size_t kWaitersMax = 65'536;
constexpr std::uint64_t kRunMax = std::uint64_t{1} << 63;  // no run that is not hostile reaches it

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
  ask.is_reachable = options_.is_reachable && options_.is_reachable();
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
  if (has_others && options_.is_connected && !options_.is_connected(to)) {
    out.deadline = std::min(out.deadline, now + kReachTime);
  }
  outgoing_.push_back(std::move(out));
}

Status WeightsCore::too_late(const Inquiry& inquiry) const {
  return deadline_exceeded("weights '{}' have no version of {} or above yet", options_.name,
                           inquiry.at_least);
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
    if (inquiry.waits && is_late && now >= inquiry.deadline) return end(id, too_late(inquiry));
    if (inquiry.waits && is_late && options_.is_connected && options_.is_connected(from)) {
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
    if (!inquiry.waits) return end(id, {});
    return fail_over(id, from, unavailable("'{}' does not wait for a version", from), now);
  }
  Result<HeldVersion> got = HeldVersion();
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
      break;
    default:
      got = unavailable("version {} is not here", answer.base);
      if (held_.about && held_.run == answer.run && held_.about->version == answer.base) {
        auto changes = std::make_shared<WeightsChanges>();
        changes->base = answer.base;
        changes->blocks = std::move(answer.blocks);
        changes->checksum = answer.checksum;
        if (!payload.bulk.empty()) changes->bytes = payload.bulk.front();
        got = apply_changes(*held_.about, answer.version, changes);
      }
      if (!got.ok()) inquiry.takes_changes = false;  // then for the complete version
  }
  if (!got.ok()) {
    inquiry.last = got.status();
    if (++inquiry.detours > kDetoursMax) return fail_over(id, from, got.status(), now);
    return advance(id, now);
  }
  const bool is_next_run = inquiry.run != 0 && answer.run > inquiry.run;
  if (answer.version < inquiry.at_least && !is_next_run) {
    return fail_over(
        id, from,
        data_loss("'{}' gives version {} for {} or above", from, answer.version, inquiry.at_least),
        now);
  }
  if (answer.kind != Kind::kMemory && has_map_requests_ && options_.share) {
    got = options_.share(std::move(*got));
  }
  got->run = answer.run;
  end(id, {});
  take(std::move(*got), now);
}

// Keeps the version if it is the newest, and sends it to waiting peers.
void WeightsCore::take(HeldVersion version, TimePoint now) {
  if (held_.about &&
      std::tie(held_.run, held_.about->version) >= std::tie(version.run, version.about->version)) {
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

// Answers those of the waiting peers that the held version is for.
void WeightsCore::answer_waiters() {
  std::vector<Waiter> waiting;
  for (Waiter& waiter : waiters_) {
    if (has_for(waiter.ask.run, waiter.ask.at_least)) {
      serve(waiter.request, waiter.ask);
    } else if (!waiter.ask.waits) {
      answer(waiter.request, encode(WeightsAnswer{}));  // it came before this peer had a version
    } else {
      waiting.push_back(std::move(waiter));
    }
  }
  waiters_ = std::move(waiting);
}

void WeightsCore::follow(TimePoint now) {
  if (follow_id_ != 0 || is_closed_ || options_.sources.empty()) return;
  if (!has_children(now) && waiters_.empty()) return;
  follow_id_ = ++last_inquiry_;
  Inquiry& inquiry = inquiries_[follow_id_];
  inquiry.at_least = held_.about ? held_.about->version + 1 : 0;
  inquiry.run = held_.run;
  inquiry.waits = true;
  inquiry.is_followed = true;
  inquiry.deadline = TimePoint::max();
  begin(inquiry, now);
  advance(follow_id_, now);
}

// --- Requests.

bool WeightsCore::is_mapped_by(const WeightsRequest& ask) const {
  return ask.maps && !ask.host.empty() && ask.host == options_.host;
}

// Drops children that have not asked for `silence`. One that waits need not ask again.
void WeightsCore::drop_silent_children(TimePoint now, Duration silence) {
  for (auto at = children_.begin(); at != children_.end();) {
    const bool is_silent = at->second.heard + silence < now;
    const bool waits = is_silent && std::ranges::count(waiters_, at->first, &Waiter::caller) > 0;
    if (waits) at->second.heard = now;
    at = is_silent && !waits ? children_.erase(at) : std::next(at);
  }
}

bool WeightsCore::has_children(TimePoint now) {
  drop_silent_children(now, kFollowedSilence);
  return !children_.empty();
}

std::string WeightsCore::elsewhere(const std::string& caller, const WeightsRequest& ask,
                                   TimePoint now) {
  if (!ask.refused.empty()) children_.erase(ask.refused);
  const auto own = children_.find(caller);
  if (own != children_.end()) own->second.heard = now;
  drop_silent_children(now, kChildSilence);
  if (own != children_.end() || is_mapped_by(ask)) {
    // Peers that map count as children only if this peer has to follow for them.
    if (own == children_.end() && options_.sources.empty()) return {};
    children_[caller] = {ask.host, now};
    return {};
  }
  if (!ask.is_reachable && children_.empty()) {
    has_unreachable_ = true;
    return {};
  }
  std::vector<std::string> sent_to;
  for (const auto& [name, child] : children_) {
    if (!child.host.empty() && child.host == options_.host) continue;  // those map
    if (ask.maps && child.host == ask.host && !child.host.empty()) return name;
    sent_to.push_back(name);
  }
  if (ask.is_reachable && sent_to.size() < kFanOut) {
    children_[caller] = {ask.host, now};
    return {};
  }
  if (sent_to.empty()) {
    has_unreachable_ = true;
    return {};
  }
  return sent_to[std::hash<std::string>()(caller) % sent_to.size()];
}

void WeightsCore::on_request(const Request& request, TimePoint now) {
  const Result<WeightsRequest> decoded = decode_weights_request(request.message.payload);
  if (!decoded.ok()) return refuse(request.id, decoded.status());
  if (is_closed_) return refuse(request.id, unavailable("these weights are no longer served"));
  const WeightsRequest& ask = *decoded;
  const std::string other = elsewhere(request.caller, ask, now);
  if (!other.empty() && (ask.waits || held_.about)) {
    WeightsAnswer answer;
    answer.kind = WeightsAnswer::Kind::kElsewhere;
    answer.peer = other;
    return this->answer(request.id, encode(answer));
  }
  has_map_requests_ = has_map_requests_ || is_mapped_by(ask);
  if (options_.sources.empty() && ask.run < kRunMax) note_run(ask.run);
  if (has_for(ask.run, ask.at_least)) {
    serve(request.id, ask);
  } else if (!ask.waits && (held_.about || options_.sources.empty())) {
    answer(request.id, encode(WeightsAnswer{}));
  } else if (waiters_.size() >= kWaitersMax) {
    refuse(request.id,
           resource_exhausted("{} peers wait for weights '{}'", waiters_.size(), options_.name));
  } else {
    waiters_.push_back({request.id, request.caller, ask});
  }
  follow(now);
}

// A peer has a version of `run`. If that is later than this publisher's, the clock of an earlier
// publisher's host was ahead: the only publisher has the latest run, also before its first version.
void WeightsCore::note_run(std::uint64_t run) {
  if (run <= std::max({options_.run, held_.run, run_floor_})) return;
  run_floor_ = run + 1;
  if (!held_.about) return;
  held_.run = run_floor_;
  answer_waiters();
}

void WeightsCore::on_withdrawn(InboundId request) {
  std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.request == request; });
}

bool WeightsCore::has_for(std::uint64_t run, std::uint64_t at_least) const {
  if (!held_.about) return false;
  const bool is_same_run = run == 0 || run == held_.run;
  return is_same_run ? held_.about->version >= at_least : held_.run > run;
}

void WeightsCore::serve(InboundId request, const WeightsRequest& ask) {
  WeightsAnswer answer;
  answer.run = held_.run;
  answer.version = held_.about->version;
  if (is_mapped_by(ask) && held_.place.fd >= 0) {
    answer.kind = WeightsAnswer::Kind::kMemory;
    answer.place = held_.place;
    return this->answer(request, encode(answer));
  }
  if (held_.changes && ask.has_version && ask.run == held_.run &&
      ask.version == held_.changes->base) {
    answer.kind = WeightsAnswer::Kind::kChanged;
    answer.base = held_.changes->base;
    answer.checksum = held_.changes->checksum;
    answer.blocks = held_.changes->blocks;
    Payload payload = encode(answer);
    if (!held_.changes->bytes.bytes.empty()) payload.bulk.push_back(held_.changes->bytes);
    return this->answer(request, std::move(payload));
  }
  answer.kind = WeightsAnswer::Kind::kSent;
  answer.head = held_.about->value.head;
  Payload payload = encode(answer);
  payload.bulk = held_.about->value.bulk;
  this->answer(request, std::move(payload));
}

void WeightsCore::answer(InboundId request, Payload payload) {
  Outgoing out;
  out.kind = Outgoing::Kind::kAnswer;
  out.request = request;
  out.payload = std::move(payload);
  outgoing_.push_back(std::move(out));
}

void WeightsCore::refuse(InboundId request, const Status& status) {
  Outgoing out;
  out.kind = Outgoing::Kind::kFail;
  out.request = request;
  out.error = {status.code(), "", status.message(), ""};
  outgoing_.push_back(std::move(out));
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
