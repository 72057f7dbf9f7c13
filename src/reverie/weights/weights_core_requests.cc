// The part of WeightsCore for peers that ask this one: who is served, and who is referred to whom.
//
// Tested in weights_core_test.cc.
#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "reverie/weights/weights_core.h"

namespace reverie {
namespace {

// A child that has not asked for this long gives its place to another.
constexpr Duration kChildSilence = std::chrono::seconds(10);
// Versions are followed for a child that has not asked for this long: programs may pull rarely.
constexpr Duration kFollowedSilence = std::chrono::minutes(2);
constexpr std::size_t kWaitersMax = 65'536;
constexpr std::uint64_t kRunMax = std::uint64_t{1} << 63;  // no run that is not hostile reaches it

}  // namespace

bool WeightsCore::is_mapped_by(const WeightsRequest& ask) const {
  return options_.maps && ask.maps && !ask.host.empty() && ask.host == options_.host;
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
  using Reach = WeightsRequest::Reach;
  const bool has_host = !ask.host.empty();
  const Child asker{ask.host, now, ask.reach, ask.maps && has_host};
  if (own != children_.end() || is_mapped_by(ask)) {
    // Peers that map count as children only if this peer has to follow for them.
    if (own == children_.end() && options_.sources.empty()) return {};
    children_[caller] = asker;
    return {};
  }
  std::vector<std::string> sent_to;  // that the asker can reach
  for (const auto& [name, child] : children_) {
    const bool is_of_host = has_host && child.host == ask.host;
    if (child.maps && options_.maps && child.host == options_.host) continue;
    if (child.reach == Reach::kNone || (child.reach == Reach::kHost && !is_of_host)) continue;
    if (asker.maps && child.maps && is_of_host) return name;
    sent_to.push_back(name);
  }
  const bool is_reachable = ask.reach == Reach::kAll || (ask.reach == Reach::kHost && has_host);
  if (is_reachable && sent_to.size() < kFanOut) {
    children_[caller] = asker;
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
  // Where nothing is followed yet, what is held may be old.
  const bool is_newest = options_.sources.empty() || (held_.about && is_following());
  if (has_for(ask.run, ask.at_least) && (is_newest || ask.waits)) {
    serve(request.id, ask);
  } else if (!ask.waits && is_newest) {
    answer(request.id, encode(WeightsAnswer{}));
  } else if (waiters_.size() >= kWaitersMax) {
    refuse(request.id,
           resource_exhausted("{} peers wait for weights '{}'", waiters_.size(), options_.name));
  } else {
    waiters_.push_back({request.id, request.caller, ask});
  }
  follow(now, /*waits=*/!held_.about || is_newest);
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

}  // namespace reverie
