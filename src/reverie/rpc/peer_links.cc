// The part of PeerCore for addresses, connections and handshakes. Names are in peer_names.cc.
//
// Tested in tests/sim/peers_sim_test.cc and peer_test.cc.
#include <algorithm>
#include <utility>

#include "reverie/net/address.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(20);
constexpr Duration kPauseMax = std::chrono::milliseconds(200);
constexpr Duration kPauseRefused = std::chrono::seconds(1);
constexpr Duration kHandshakeMax = std::chrono::seconds(5);
// An address learned from other peers is forgotten after this many failures.
constexpr int kFailuresMax = 5;
constexpr std::size_t kRoutesMax = 16'384;
// The field `call` of HELLO if this side uses UCX, and that of WELCOME if both do.
constexpr std::uint64_t kUsesUcx = 1;

std::shared_ptr<const Message> shared(Message message) {
  return std::make_shared<const Message>(std::move(message));
}

bool is_unix(const std::string& address) {
  return address.starts_with("unix:");
}

bool is_transient(const Status& why) {
  return why.code() != StatusCode::kUnauthenticated && why.code() != StatusCode::kAlreadyExists &&
         why.code() != StatusCode::kFailedPrecondition;
}

}  // namespace

// --- Routes.

void PeerCore::connect(const std::string& address, TimePoint now) {
  Route& route = routes_[address];
  route.is_explicit = true;
  route.next_try = now;
  step_routes(now);
}

void PeerCore::dial(const std::string& address, TimePoint now) {
  Route& route = routes_.at(address);
  if (route.link != 0) return;
  const LinkId id = next_link_++;
  Link& link = links_[id];
  link.is_dialled = true;
  link.address = address;
  link.opened = link.heard = link.sent = now;
  route.link = id;
  tick_by(now + options_.dead_after / 6);
  effects_.dial(id, address);
}

bool PeerCore::is_needed(const Route& route) const {
  const auto named = session_by_name_.find(route.peer);
  if (named == session_by_name_.end()) {
    return route.is_explicit || wanted_.contains(route.peer);
  }
  const Session& session = sessions_.at(named->second);
  if (session.link != 0) return false;
  return route.is_explicit || session.call_count > 0 || !session.queue.empty() ||
         !session.running.empty();
}

void PeerCore::step_routes(TimePoint now) {
  if (is_closed_) return;
  std::vector<std::string> due;
  for (auto route = routes_.begin(); route != routes_.end();) {
    auto& [address, state] = *route;
    if (state.link != 0 || !is_needed(state)) {
      ++route;
    } else if (!state.is_explicit && state.failures >= kFailuresMax) {
      route = routes_.erase(route);
    } else {
      if (state.next_try <= now) {
        due.push_back(address);
      } else {
        tick_by(state.next_try);
      }
      ++route;
    }
  }
  for (const std::string& address : due) dial(address, now);
}

void PeerCore::drop_stale_routes() {
  std::erase_if(routes_, [this](const auto& entry) {
    const auto& [address, route] = entry;
    if (route.is_explicit || route.link != 0 || wanted_.contains(route.peer)) return false;
    const Session* const session = session_of_name(route.peer);
    return session == nullptr ||
           std::ranges::find(session->peer_addresses, address) == session->peer_addresses.end();
  });
}

void PeerCore::add_routes(const std::string& peer, const std::vector<std::string>& addresses,
                          const std::string& host) {
  const bool is_same_host = !host.empty() && host == options_.host;
  if (routes_.size() + addresses.size() > kRoutesMax) drop_stale_routes();
  for (const std::string& address : addresses) {
    // Skips addresses that only processes of the other machine can reach.
    if (!is_same_host && is_of_one_host(address)) continue;
    if (is_unix(address) ? !options_.uses_unix : !options_.uses_tcp) continue;
    if (!parse_endpoint(address).ok() || routes_.size() >= kRoutesMax) continue;
    Route& route = routes_[address];
    if (route.is_explicit || route.link != 0) continue;
    route.peer = peer;
    route.failures = 0;
  }
}

// --- Links.

LinkId PeerCore::accepted(const std::string& address, TimePoint now) {
  const LinkId id = next_link_++;
  Link& link = links_[id];
  link.address = address;
  link.remote = is_unix(address) ? "localhost" : address.substr(0, address.rfind(':'));
  if (link.remote.starts_with('[')) link.remote = link.remote.substr(1, link.remote.size() - 2);
  link.stage = Stage::kHello;
  link.opened = link.heard = link.sent = now;
  tick_by(now + options_.dead_after / 6);
  return id;
}

bool PeerCore::make_way(TimePoint now) {
  const auto stranger = std::ranges::find_if(links_, [](const auto& entry) {
    return entry.second.stage == Stage::kHello || entry.second.stage == Stage::kResume;
  });
  if (stranger == links_.end()) return false;
  drop_link(
      stranger->first,
      resource_exhausted("{}: its handshake took so long that it was closed in favour of others",
                         stranger->second.address),
      now);
  return true;
}

void PeerCore::link_up(LinkId id, const std::string& remote, TimePoint now) {
  const auto place = links_.find(id);
  if (place == links_.end()) return;
  Link& link = place->second;
  link.remote = is_unix(link.address) ? "localhost" : remote;
  link.stage = Stage::kWelcome;
  link.heard = now;
  link.mine = {options_.name, options_.run, {}, options_.host, addresses_, {}};
  for (std::uint64_t& part : link.mine.nonce) part = options_.random();
  link.uses_ucx = options_.uses_ucx && !is_unix(link.address) &&
                  !without_ucx_.contains(routes_.at(link.address).run);
  send(id, {FrameKind::kHello, 0, 0, link.uses_ucx}, shared(encode(link.mine)), now);
}

void PeerCore::lose_link(LinkId id, const Status& why, TimePoint now) {
  const auto place = links_.find(id);
  if (place == links_.end()) return;
  const Link link = std::move(place->second);
  links_.erase(place);
  if (link.stage == Stage::kOpen && link.uses_ucx && !link.is_ucx_heard && !why.ok() &&
      without_ucx_.size() < kRoutesMax) {
    without_ucx_.insert(link.theirs.run);
  }
  if (link.is_dialled) {
    const auto found = routes_.find(link.address);
    if (found != routes_.end() && found->second.link == id) {
      Route& route = found->second;
      route.link = 0;
      route.last = why;
      route.is_refused = !is_transient(why);
      if (link.stage == Stage::kOpen) {
        route.pause = Duration::zero();
      } else {
        ++route.failures;
        route.pause = std::clamp(2 * route.pause, kPauseMin, kPauseMax);
        if (route.is_refused) route.pause = kPauseRefused;
      }
      route.next_try = now + route.pause;
    }
  }
  const auto session = sessions_.find(link.session);
  if (session != sessions_.end() && session->second.link == id) {
    session->second.link = 0;
    session->second.link_lost_at = now;
    tick_by(now + options_.dead_after);
    // Another of its addresses may work.
    for (auto& [address, route] : routes_) {
      if (route.peer == session->second.peer_name) route.next_try = std::min(route.next_try, now);
    }
  }
  tick_by(now);
}

void PeerCore::drop_link(LinkId id, const Status& why, TimePoint now) {
  if (!links_.contains(id)) return;
  lose_link(id, why, now);
  effects_.hang_up(id);
}

void PeerCore::heard(LinkId id, TimePoint now) {
  const auto place = links_.find(id);
  if (place == links_.end()) return;
  place->second.heard = now;
  place->second.is_ucx_heard = place->second.stage == Stage::kOpen;
}

void PeerCore::send(LinkId id, const FrameHeader& header, std::shared_ptr<const Message> message,
                    TimePoint now) {
  links_.at(id).sent = now;
  effects_.send(id, header, std::move(message));
}

void PeerCore::refuse(LinkId id, const Status& why, TimePoint now) {
  send(id, {FrameKind::kRefused, 0, 0, 0}, shared(encode_refusal(why)), now);
  drop_link(id, why, now);
}

void PeerCore::step_links(TimePoint now) {
  std::vector<LinkId> silent;
  std::vector<std::uint64_t> dead;
  for (auto& [id, link] : links_) {
    if (link.stage != Stage::kOpen) {
      if (now - link.opened > kHandshakeMax) silent.push_back(id);
      continue;
    }
    if (now - link.heard > options_.dead_after) {
      dead.push_back(link.session);
      continue;
    }
    Session& session = sessions_.at(link.session);
    if (session.unacknowledged > 0 || now - link.sent >= options_.dead_after / 3) {
      acknowledge(session, now);
    }
  }
  for (const LinkId id : silent) {
    drop_link(id,
              deadline_exceeded("{}: no handshake within {} s", links_.at(id).address,
                                to_seconds(kHandshakeMax)),
              now);
  }
  for (const auto& [key, session] : sessions_) {
    if (session.is_unread) dead.push_back(key);
    if (session.link == 0 && now - session.link_lost_at > options_.dead_after) dead.push_back(key);
  }
  for (const std::uint64_t key : dead) {
    const auto place = sessions_.find(key);
    if (place == sessions_.end()) continue;
    const Session& session = place->second;
    const Status why =
        session.is_unread ? unavailable("'{}' does not read: {} frames wait for it",
                                        session.peer_name, session.queue.size())
        : session.link != 0
            ? unavailable("'{}' has been silent for {} s", session.peer_name,
                          to_seconds(options_.dead_after))
            : unavailable("'{}' has been out of reach for {} s: {}", session.peer_name,
                          to_seconds(options_.dead_after), dial_failures(session.peer_name));
    end_session(key, why, CallResult::Kind::kFailed, now);
  }
}

// --- The handshake.

void PeerCore::received(LinkId id, Frame frame, TimePoint now) {
  const auto place = links_.find(id);
  if (place == links_.end() || is_closed_) return;
  Link& link = place->second;
  link.heard = now;
  if (link.stage == Stage::kOpen) {
    on_message(link.session, std::move(frame), now);
    return;
  }
  const FrameKind kind = frame.header.kind;
  if (kind == FrameKind::kRefused && link.is_dialled) {
    const Status why = decode_refusal(frame.message).with_context(link.address);
    drop_link(id, why, now);
  } else if (link.stage == Stage::kHello && kind == FrameKind::kHello) {
    on_hello(id, link, frame, now);
  } else if (link.stage == Stage::kWelcome && kind == FrameKind::kWelcome) {
    on_welcome(id, link, frame, now);
  } else if (link.stage == Stage::kResume && kind == FrameKind::kResume) {
    on_resume(id, link, frame.message, now);
  } else if (link.stage == Stage::kResumed && kind == FrameKind::kResumed) {
    on_resumed(id, link, frame.message, now);
  } else {
    drop_link(id,
              data_loss("{}: a frame of kind {} arrived during the handshake", link.address,
                        static_cast<int>(kind)),
              now);
  }
}

Status PeerCore::check_greeting(const Greeting& theirs) const {
  if (theirs.run == options_.run) {
    return failed_precondition("'{}' has connected to itself; use another address", options_.name);
  }
  if (theirs.name == options_.name) {
    return already_exists("two peers are called '{}'; give one another name", options_.name);
  }
  return {};
}

Status PeerCore::claim_name(const Greeting& theirs, TimePoint now) {
  const auto named = session_by_name_.find(theirs.name);
  if (named == session_by_name_.end()) return {};
  const Session& session = sessions_.at(named->second);
  if (session.peer_run == theirs.run) return {};
  if (session.link != 0) {
    return already_exists(
        "another peer called '{}' is connected to '{}'; give one another name, or wait until that "
        "one is gone",
        theirs.name, options_.name);
  }
  end_session(named->second, unavailable("'{}' was restarted", theirs.name),
              CallResult::Kind::kRestarted, now);
  return {};
}

void PeerCore::on_hello(LinkId id, Link& link, const Frame& frame, TimePoint now) {
  Result<Greeting> greeting = decode_greeting(frame.message);
  if (!greeting.ok()) return drop_link(id, greeting.status(), now);
  link.theirs = std::move(*greeting);
  const Status status = check_greeting(link.theirs);
  if (!status.ok()) return refuse(id, status, now);
  link.mine = {options_.name, options_.run, {}, options_.host, addresses_, {}};
  for (std::uint64_t& part : link.mine.nonce) part = options_.random();
  link.mine.proof = make_proof(options_.token, /*is_dialler=*/false, link.theirs, link.mine);
  link.stage = Stage::kResume;
  link.uses_ucx =
      options_.uses_ucx && frame.header.call == kUsesUcx && !without_ucx_.contains(link.theirs.run);
  send(id, {FrameKind::kWelcome, 0, 0, link.uses_ucx}, shared(encode(link.mine)), now);
}

void PeerCore::on_welcome(LinkId id, Link& link, const Frame& frame, TimePoint now) {
  Result<Greeting> greeting = decode_greeting(frame.message);
  if (!greeting.ok()) return drop_link(id, greeting.status(), now);
  link.theirs = std::move(*greeting);
  const Status named = check_greeting(link.theirs);
  if (!named.ok()) return drop_link(id, named.with_context(link.address), now);
  if (!is_proof_right(options_.token, /*is_dialler=*/false, link.mine, link.theirs,
                      link.theirs.proof)) {
    return drop_link(id,
                     Status(StatusCode::kUnauthenticated,
                            format("{}: '{}' has another token, or none; give both the same",
                                   link.address, link.theirs.name)),
                     now);
  }
  const Status claim = claim_name(link.theirs, now);
  if (!claim.ok()) return drop_link(id, claim.with_context(link.address), now);
  routes_.at(link.address).peer = link.theirs.name;
  routes_.at(link.address).run = link.theirs.run;
  const std::uint64_t key = key_of_run(link.theirs, now);
  const Session& session = sessions_.at(key);
  if (session.link != 0 && links_.at(session.link).is_dialled &&
      is_unix(links_.at(session.link).address) && !is_unix(link.address)) {
    return drop_link(id, {}, now);  // the existing link is faster
  }
  link.stage = Stage::kResumed;
  link.uses_ucx = link.uses_ucx && frame.header.call == kUsesUcx;
  effects_.trust(id, link.theirs.name);
  send(id, {FrameKind::kResume, 0, 0, 0},
       shared(encode(
           Resumption{make_proof(options_.token, /*is_dialler=*/true, link.mine, link.theirs),
                      session.nonce, session.peer_nonce, session.last_received})),
       now);
}

std::uint64_t PeerCore::key_of_run(const Greeting& theirs, TimePoint now) {
  const auto named = session_by_name_.find(theirs.name);
  if (named != session_by_name_.end()) return named->second;
  const std::uint64_t key = next_session_++;
  Session& session = sessions_[key];
  session.peer_name = theirs.name;
  session.peer_run = theirs.run;
  session.peer_host = theirs.host;
  while (session.nonce == 0) session.nonce = options_.random();
  session.link_lost_at = now;
  session_by_name_[theirs.name] = key;
  tick_by(now + options_.dead_after);
  return key;
}

bool PeerCore::should_replace(const Session& session, const Link& link) const {
  if (session.link == 0) return true;
  const Link& old = links_.at(session.link);
  if (old.is_dialled == link.is_dialled) return true;
  // Both dialled at the same time: the one that the smaller run dialled stays.
  return link.is_dialled == (options_.run < session.peer_run);
}

void PeerCore::on_resume(LinkId id, Link& link, const Message& message, TimePoint now) {
  const Result<Resumption> theirs = decode_resumption(message);
  if (!theirs.ok()) return drop_link(id, theirs.status(), now);
  if (!is_proof_right(options_.token, /*is_dialler=*/true, link.theirs, link.mine, theirs->proof)) {
    return refuse(id,
                  Status(StatusCode::kUnauthenticated,
                         format("'{}' asks for a token, and '{}' has another one, or none",
                                options_.name, link.theirs.name)),
                  now);
  }
  const Status claim = claim_name(link.theirs, now);
  if (!claim.ok()) return refuse(id, claim, now);
  const std::uint64_t key = key_of_run(link.theirs, now);
  Session& session = sessions_.at(key);
  if (!should_replace(session, link)) {
    return refuse(id, unavailable("'{}' is connected already", link.theirs.name), now);
  }
  const bool is_resumed =
      (session.peer_nonce == 0 || session.peer_nonce == theirs->session) &&
      (theirs->receiver_session == 0 || theirs->receiver_session == session.nonce);
  if (!is_resumed) {
    forget_sent(key, now);
    session.nonce = 0;
    while (session.nonce == 0) session.nonce = options_.random();
  }
  session.peer_nonce = theirs->session;
  effects_.trust(id, link.theirs.name);
  send(id, {FrameKind::kResumed, 0, 0, 0},
       shared(encode(Resumption{{}, session.nonce, session.peer_nonce, session.last_received})),
       now);
  open(id, key, is_resumed ? theirs->received : 0, now);
}

void PeerCore::on_resumed(LinkId id, Link& link, const Message& message, TimePoint now) {
  const Result<Resumption> theirs = decode_resumption(message);
  if (!theirs.ok()) return drop_link(id, theirs.status(), now);
  const auto named = session_by_name_.find(link.theirs.name);
  if (named == session_by_name_.end() ||
      sessions_.at(named->second).nonce != theirs->receiver_session ||
      sessions_.at(named->second).peer_run != link.theirs.run) {
    return drop_link(id, unavailable("{}: the session ended meanwhile", link.address), now);
  }
  const std::uint64_t key = named->second;
  Session& session = sessions_.at(key);
  if (!should_replace(session, link)) return drop_link(id, {}, now);
  const bool is_resumed = session.peer_nonce == 0 || session.peer_nonce == theirs->session;
  if (!is_resumed) forget_sent(key, now);
  session.peer_nonce = theirs->session;
  open(id, key, is_resumed ? theirs->received : 0, now);
}

void PeerCore::open(LinkId id, std::uint64_t key, std::uint64_t received, TimePoint now) {
  Session& session = sessions_.at(key);
  if (session.link != 0) drop_link(session.link, {}, now);
  Link& link = links_.at(id);
  link.stage = Stage::kOpen;
  link.session = key;
  link.joined = link.heard = now;
  session.link = id;
  if (link.uses_ucx) effects_.use_ucx(id, link.is_dialled);
  answer_bytes_ -= session.acknowledge(received);
  for (Session::Queued& queued : session.queue) send_queued(session, queued, now);
  note_addresses(session, link.theirs.addresses);
  // It began to listen during the handshake.
  if (link.mine.addresses.size() < addresses_.size()) tell_addresses(session, now);
  if (link.is_dialled) {
    Route& route = routes_.at(link.address);
    route.last = {};
    route.failures = 0;
    route.is_refused = false;
    // A Unix socket that the peer has announced is faster.
    if (!is_unix(link.address)) {
      for (const auto& [address, other] : routes_) {
        if (is_unix(address) && other.peer == session.peer_name && other.failures == 0) {
          dial(address, now);
          break;
        }
      }
    }
  }
  const auto wanted = wanted_.find(session.peer_name);
  if (wanted != wanted_.end()) {
    const std::vector<CallId> calls = std::move(wanted->second.calls);
    wanted_.erase(wanted);
    for (const CallId call : calls) start(call, key, now);
  }
  // This peer may know peers that calls wait for.
  for (auto& [name, other] : wanted_) ask_for(name, other, now);
  tick_by(now + options_.dead_after / 6);
}

}  // namespace reverie
