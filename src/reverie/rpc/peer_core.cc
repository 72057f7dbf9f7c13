// Calls, requests, sessions and time. Links and routes are in peer_links.cc, received messages in
// peer_inbound.cc.
//
// Tested in tests/sim/peers_sim_test.cc and peer_test.cc.
#include "reverie/rpc/peer_core.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "reverie/rpc/remote_error.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

constexpr std::size_t kFunctionNameMax = 1024;
// Deadlines are checked at most this often, and less often if there are many calls.
constexpr Duration kDeadlineStep = std::chrono::milliseconds(1);
constexpr std::size_t kCallsAStep = 1000;
// How many frames may wait for one peer, as a multiple of `calls_max`: calls, answers and
// cancellations. At least kQueuedMin, since frames that were read wait to be acknowledged too.
constexpr std::size_t kQueuedRatioMax = 4;
constexpr std::size_t kQueuedMin = 262'144;

std::shared_ptr<const Message> named(std::string name, Payload payload = {}) {
  return std::make_shared<const Message>(Message{std::move(name), std::move(payload)});
}

}  // namespace

PeerCore::PeerCore(PeerOptions options, PeerEffects& effects)
    : options_(std::move(options)), effects_(effects) {
  next_tick_ = TimePoint::max();
}

Status PeerCore::define(const std::string& function) {
  if (function.empty() || function.size() > kFunctionNameMax) {
    return invalid_argument("a function's name has {} bytes; it must have 1 to {}", function.size(),
                            kFunctionNameMax);
  }
  if (function == kPingFunction || function == kListFunction || function == kDeviceFunction) {
    return invalid_argument("'{}' is a function of every peer; choose another name", function);
  }
  if (!functions_.insert(function).second) {
    return already_exists("'{}' is defined already; undefine it first, or choose another name",
                          function);
  }
  return {};
}

bool PeerCore::undefine(const std::string& function) {
  return functions_.erase(function) > 0;
}

std::vector<std::string> PeerCore::functions() const {
  return {functions_.begin(), functions_.end()};
}

std::vector<PeerInfo> PeerCore::peers() const {
  std::vector<PeerInfo> found;
  for (const auto& [key, session] : sessions_) {
    PeerInfo& info = found.emplace_back();
    info.name = session.peer_name;
    info.is_connected = session.link != 0;
    info.link = session.link;
    if (info.is_connected) info.link_address = links_.at(session.link).address;
    info.calls = session.call_count;
    info.requests = session.running.size();
  }
  return found;
}

// --- Calls.

Result<CallId> PeerCore::call(const std::string& peer, const std::string& function, Payload payload,
                              const CallOptions& options, TimePoint now) {
  if (is_closed_) return failed_precondition("this peer is closed; make a new one");
  if (peer == options_.name) {
    return failed_precondition(
        "'{}' is called on '{}', which is this peer itself; call the function directly", function,
        peer);
  }
  if (peer.empty() || peer.size() > kPeerNameMax) {
    return invalid_argument("a peer's name has {} bytes; it must have 1 to {}", peer.size(),
                            kPeerNameMax);
  }
  if (function.empty() || function.size() > kFunctionNameMax) {
    return invalid_argument("a function's name has {} bytes; it must have 1 to {}", function.size(),
                            kFunctionNameMax);
  }
  Call call;
  call.peer = peer;
  call.options = options;
  call.message = std::make_shared<Message>(Message{function, std::move(payload)});
  call.size_bytes = call.message->size_bytes();
  const FrameLimits limits;
  const Payload& given = call.message->payload;
  if (!limits.allow(given.head.size(), given.bulk_bytes())) {
    return invalid_argument(
        "the call of '{}' on '{}' has {} bytes of values and {} of arrays; the bounds are {} and "
        "{}: send it in parts",
        function, peer, given.head.size(), given.bulk_bytes(), limits.head_bytes_max,
        limits.bulk_bytes_max);
  }
  if (calls_.size() >= options_.calls_max ||
      call.size_bytes > options_.call_bytes_max - call_bytes_) {
    return resource_exhausted(
        "{} calls of {} bytes wait for answers, and '{}' on '{}' would add {} bytes; the bounds "
        "are {} calls and {} bytes: take results before calling again",
        calls_.size(), call_bytes_, function, peer, call.size_bytes, options_.calls_max,
        options_.call_bytes_max);
  }
  const auto found = session_by_name_.find(peer);
  if (given.lent && (found == session_by_name_.end() || found->second != given.lent->session ||
                     !sessions_.at(found->second).is_host_proved)) {
    return unavailable(
        "'{}' has ended, or forgotten this peer, since '{}' was called with memory of a device; "
        "call again",
        peer, function);
  }
  const CallId id = next_call_++;
  call_bytes_ += call.size_bytes;
  calls_.emplace(id, std::move(call));
  if (options.deadline < next_deadline_) {
    next_deadline_ = options.deadline;
    tick_by(next_deadline_);
  }
  if (found != session_by_name_.end()) {
    start(id, found->second, now);
  } else {
    wait_for_peer(id, peer, now);
  }
  return id;
}

void PeerCore::start(CallId id, std::uint64_t key, TimePoint now) {
  Call& call = calls_.at(id);
  Session& session = sessions_.at(key);
  call.session = key;
  ++session.call_count;
  call.sequence = enqueue(session, FrameKind::kCall, id, call.message, now);
}

void PeerCore::wait_for_peer(CallId id, const std::string& peer, TimePoint now) {
  const auto [place, is_new] = wanted_.try_emplace(peer);
  Wanted& wanted = place->second;
  calls_.at(id).session = 0;
  calls_.at(id).waits_since = now;
  wanted.calls.push_back(id);
  if (!is_new) return;
  wanted.since = now;
  ask_for(peer, wanted, now);
  for (auto& [address, route] : routes_) {
    if (route.peer == peer) route.next_try = std::min(route.next_try, now);
  }
  step_routes(now);
  tick_by(now + options_.dead_after / 6);
}

void PeerCore::finish(CallId id, CallResult result) {
  const auto place = calls_.find(id);
  if (place == calls_.end()) return;
  call_bytes_ -= place->second.size_bytes;
  if (place->second.session != 0) {
    const auto session = sessions_.find(place->second.session);
    if (session != sessions_.end()) --session->second.call_count;
  }
  calls_.erase(place);
  effects_.complete(id, std::move(result));
}

void PeerCore::cancel(CallId id, TimePoint now) {
  end_call(id, cancelled("the call was cancelled"), CallResult::Kind::kFailed, now);
}

void PeerCore::end_call(CallId id, const Status& why, CallResult::Kind kind, TimePoint now) {
  const auto place = calls_.find(id);
  if (place == calls_.end()) return;
  const Call& call = place->second;
  if (call.session != 0) {
    Session& session = sessions_.at(call.session);
    const auto queued = std::lower_bound(
        session.queue.begin(), session.queue.end(), call.sequence,
        [](const Session::Queued& q, std::uint64_t s) { return q.header.sequence < s; });
    const bool is_queued =
        queued != session.queue.end() && queued->header.sequence == call.sequence;
    if (is_queued && !queued->is_sent) {
      session.take_back(FrameKind::kCall, id);
      session.queue.erase(queued);
    } else {
      if (is_queued) keep_arrays(session, *queued, call, now);
      enqueue(session, FrameKind::kCancel, id, named({}), now);
    }
  } else {
    const auto wanted = wanted_.find(call.peer);
    if (wanted != wanted_.end()) {
      std::erase(wanted->second.calls, id);
      if (wanted->second.calls.empty()) wanted_.erase(wanted);
    }
  }
  finish(id, {kind, why});
}

// --- Requests.

bool PeerCore::end_request(Session& session, std::uint64_t call) {
  const auto place = session.running.find(call);
  if (place == session.running.end()) return false;
  --request_count_;
  request_bytes_ -= place->second;
  session.running.erase(place);
  return true;
}

void PeerCore::withdraw_all(std::uint64_t key, Session& session) {
  for (const auto& [call, size] : session.running) {
    request_bytes_ -= size;
    effects_.withdraw({key, call});
  }
  request_count_ -= session.running.size();
  session.running.clear();
}

void PeerCore::answer(InboundId request, Payload payload, TimePoint now) {
  const auto place = sessions_.find(request.session);
  if (place == sessions_.end() || !end_request(place->second, request.call)) return;
  const FrameLimits limits;
  if (payload.head.size() > limits.head_bytes_max || payload.bulk_bytes() > limits.bulk_bytes_max) {
    const Status why = invalid_argument(
        "the answer has {} bytes of values and {} of arrays; the bounds are {} and {}",
        payload.head.size(), payload.bulk_bytes(), limits.head_bytes_max, limits.bulk_bytes_max);
    return enqueue_error(place->second, request.call, why, now);
  }
  enqueue_answer(place->second, request.call, std::move(payload), now);
}

void PeerCore::enqueue_answer(Session& session, std::uint64_t call, Payload payload,
                              TimePoint now) {
  auto message = named({}, std::move(payload));
  const std::size_t size = message->size_bytes();
  if (answer_bytes_ == 0 || answer_bytes_ + size <= options_.held_bytes_max) {
    session.answer_bytes += size;
    answer_bytes_ += size;
    enqueue(session, FrameKind::kAnswer, call, std::move(message), now);
    return;
  }
  const Status why = resource_exhausted(
      "peer '{}' has {} bytes of answers that others have not read, {} of them for '{}', and this "
      "one has {}; the bound is {} bytes: take results before calling again",
      options_.name, answer_bytes_, session.answer_bytes, session.peer_name, size,
      options_.held_bytes_max);
  enqueue_error(session, call, why, now);
}

void PeerCore::enqueue_error(Session& session, std::uint64_t call, const Status& why,
                             TimePoint now) {
  const RemoteError error{why.code(), "", why.message(), ""};
  enqueue(session, FrameKind::kError, call, named({}, encode_error(error)), now);
}

void PeerCore::fail(InboundId request, const RemoteError& error, TimePoint now) {
  const auto place = sessions_.find(request.session);
  if (place == sessions_.end() || !end_request(place->second, request.call)) return;
  enqueue(place->second, FrameKind::kError, request.call, named({}, encode_error(error)), now);
}

bool PeerCore::is_wanted(InboundId request) const {
  const auto place = sessions_.find(request.session);
  return place != sessions_.end() && place->second.running.contains(request.call);
}

LinkId PeerCore::link_to(const std::string& peer) const {
  const auto found = session_by_name_.find(peer);
  return found == session_by_name_.end() ? 0 : sessions_.at(found->second).link;
}

LinkId PeerCore::link_to(InboundId request) const {
  const auto place = sessions_.find(request.session);
  return place == sessions_.end() ? 0 : place->second.link;
}

void PeerCore::close(TimePoint now) {
  if (std::exchange(is_closed_, true)) return;
  while (!sessions_.empty()) {
    const std::uint64_t key = sessions_.begin()->first;
    const LinkId link = sessions_.begin()->second.link;
    if (link != 0) send(link, {FrameKind::kBye, 0, 0, 0}, named({}), now);
    end_session(key, cancelled("this peer was closed"), CallResult::Kind::kFailed, now);
  }
  for (const auto& [id, link] : links_) effects_.hang_up(id);
  links_.clear();
  routes_.clear();
  wanted_.clear();
  while (!calls_.empty()) {
    finish(calls_.begin()->first, {CallResult::Kind::kFailed, cancelled("this peer was closed")});
  }
  next_tick_ = TimePoint::max();
}

// --- Sessions.

Session* PeerCore::session_of_name(const std::string& name) {
  const auto found = session_by_name_.find(name);
  return found == session_by_name_.end() ? nullptr : &sessions_.at(found->second);
}

std::vector<CallId> PeerCore::calls_of(std::uint64_t key) const {
  std::vector<CallId> found;
  for (const auto& [id, call] : calls_) {
    if (call.session == key) found.push_back(id);
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::uint64_t PeerCore::enqueue(Session& session, FrameKind kind, std::uint64_t call,
                                std::shared_ptr<const Message> message, TimePoint now) {
  Session::Queued& queued = session.queue.emplace_back();
  const std::shared_ptr<Lent>& lent = message->payload.lent;
  queued.header = {kind, session.next_sequence++, 0, call, lent != nullptr};
  if (lent) session.lent[{kind, call}] = lent;
  queued.message = std::move(message);
  const std::uint64_t sequence = queued.header.sequence;
  if (session.queue.size() > std::max(kQueuedMin, kQueuedRatioMax * options_.calls_max)) {
    session.is_unread = true;
    tick_by(now);
  }
  if (session.link != 0) send_queued(session, queued, now);
  return sequence;
}

void PeerCore::send_queued(Session& session, Session::Queued& queued, TimePoint now) {
  queued.is_sent = true;
  queued.header.received = session.last_received;
  session.unacknowledged = 0;
  session.unacknowledged_bytes = 0;
  send(session.link, queued.header, queued.message, now);
}

void PeerCore::acknowledge(Session& session, TimePoint now) {
  session.unacknowledged = 0;
  session.unacknowledged_bytes = 0;
  send(session.link, {FrameKind::kAck, 0, session.last_received, 0}, named({}), now);
}

void PeerCore::forget_sent(std::uint64_t key, TimePoint now) {
  Session& session = sessions_.at(key);
  if (session.link != 0) drop_link(session.link, unavailable("replaced"), now);
  withdraw_all(key, session);
  session.last_received = 0;
  session.life = std::make_shared<char>();
  // A process of another host that has heard the run's number may have begun the new session.
  session.is_host_proved = false;
  std::vector<CallId> lost;
  std::deque<Session::Queued> kept;
  std::unordered_set<CallId> unsent;
  for (Session::Queued& queued : session.queue) {
    const bool is_call = queued.header.kind == FrameKind::kCall;
    if (queued.is_sent || !is_call || queued.message->payload.lent) continue;
    unsent.insert(queued.header.call);
    kept.push_back(std::move(queued));
  }
  for (const CallId id : calls_of(key)) {
    if (!unsent.contains(id)) lost.push_back(id);
  }
  session.queue = std::move(kept);
  session.take_all_back();
  answer_bytes_ -= std::exchange(session.answer_bytes, 0);
  for (const CallId id : lost) {
    Call& call = calls_.at(id);
    if (call.options.is_idempotent && !call.message->payload.lent) {
      call.sequence = enqueue(session, FrameKind::kCall, id, call.message, now);
      continue;
    }
    finish(id, {CallResult::Kind::kFailed,
                unavailable("'{}' was out of reach for so long that it forgot the call of '{}'; "
                            "the call may have been carried out",
                            session.peer_name, call.message->name)});
  }
}

void PeerCore::end_session(std::uint64_t key, const Status& why, CallResult::Kind kind,
                           TimePoint now) {
  Session session = std::move(sessions_.at(key));
  sessions_.erase(key);
  const auto named_by = session_by_name_.find(session.peer_name);
  if (named_by != session_by_name_.end() && named_by->second == key) {
    session_by_name_.erase(named_by);
  }
  if (session.link != 0) {
    links_.at(session.link).session = 0;
    drop_link(session.link, why, now);
  }
  withdraw_all(key, session);
  answer_bytes_ -= session.answer_bytes;
  session.take_all_back();
  for (auto& [name, wanted] : wanted_) std::erase(wanted.to_answer, key);
  std::unordered_set<CallId> unsent;
  for (const Session::Queued& queued : session.queue) {
    if (!queued.is_sent && queued.header.kind == FrameKind::kCall)
      unsent.insert(queued.header.call);
  }
  for (const CallId id : calls_of(key)) {
    const auto call = calls_.find(id);
    if (call == calls_.end()) continue;
    call->second.session = 0;
    // What was lent to this run is not lent to the next one.
    const bool may_move = !call->second.message->payload.lent && !is_closed_;
    if ((call->second.options.is_idempotent || unsent.contains(id)) && may_move) {
      wait_for_peer(id, session.peer_name, now);
      continue;
    }
    finish(id, {kind,
                why.with_context(format("the call of '{}' on '{}', which may have been carried out",
                                        call->second.message->name, session.peer_name))});
  }
}

void PeerCore::link_down(LinkId id, const Status& why, TimePoint now) {
  std::string gone;  // the peer whose run has ended
  const auto place = links_.find(id);
  if (place != links_.end() && place->second.is_dialled && is_abstract(place->second.address) &&
      why.code() == StatusCode::kNotFound) {
    const auto route = routes_.find(place->second.address);
    const Session* const session =
        route == routes_.end() ? nullptr : session_of_name(route->second.peer);
    if (session != nullptr && session->link == 0 &&
        std::ranges::find(session->peer_addresses, route->first) != session->peer_addresses.end()) {
      gone = route->second.peer;
    }
  }
  lose_link(id, why, now);
  if (gone.empty()) return;
  end_session(session_by_name_.at(gone), unavailable("'{}' has ended: {}", gone, why.message()),
              CallResult::Kind::kFailed, now);
}

// --- Time.

void PeerCore::step_deadlines(TimePoint now) {
  if (now < next_deadline_) {
    if (next_deadline_ < TimePoint::max()) tick_by(next_deadline_);
    return;
  }
  std::vector<CallId> late;
  TimePoint next = TimePoint::max();
  for (const auto& [id, call] : calls_) {
    if (call.options.deadline <= now) {
      late.push_back(id);
    } else {
      next = std::min(next, call.options.deadline);
    }
  }
  std::sort(late.begin(), late.end());
  for (const CallId id : late) {
    const Call& call = calls_.at(id);
    const Session* const session = call.session != 0 ? &sessions_.at(call.session) : nullptr;
    const std::string cause = session != nullptr && session->link != 0
                                  ? std::string("it is connected and has not answered")
                                  : dial_failures(call.peer);
    end_call(id,
             deadline_exceeded("the call of '{}' on '{}' was not answered in time: {}",
                               call.message->name, call.peer, cause),
             CallResult::Kind::kFailed, now);
  }
  const auto steps = static_cast<std::int64_t>(1 + calls_.size() / kCallsAStep);
  next_deadline_ = next == TimePoint::max() ? next : std::max(next, now + kDeadlineStep * steps);
  if (next_deadline_ < TimePoint::max()) tick_by(next_deadline_);
}

void PeerCore::tick(TimePoint now) {
  next_tick_ = TimePoint::max();
  if (is_closed_) return;
  step_links(now);
  step_routes(now);
  step_wanted(now);
  step_deadlines(now);
  if (!links_.empty() || !sessions_.empty() || !wanted_.empty()) {
    tick_by(now + options_.dead_after / 6);
  }
}

}  // namespace reverie
