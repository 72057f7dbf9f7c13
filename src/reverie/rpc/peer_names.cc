// The part of PeerCore that finds peers by name: which peers it asks, what it answers when asked,
// and when it gives up.
//
// Tested in tests/sim/peers_sim_test.cc and peer_test.cc.
#include <algorithm>
#include <optional>
#include <utility>

#include "reverie/net/address.h"
#include "reverie/rpc/peer_core.h"

namespace reverie {
namespace {

constexpr Duration kAskPause = std::chrono::milliseconds(250);
constexpr std::size_t kAskedMax = 64;

}  // namespace

void PeerCore::ask_for(const std::string& name, Wanted& wanted, TimePoint now) {
  wanted.last_asked = now;
  tick_by(now + kAskPause);
  wanted.to_answer.clear();
  for (auto& [key, session] : sessions_) {
    if (session.link == 0) continue;
    if (wanted.to_answer.size() >= kAskedMax) break;
    wanted.to_answer.push_back(key);
    enqueue(session, FrameKind::kFind, 0, std::make_shared<const Message>(Message{name, {}}), now);
  }
}

void PeerCore::on_find(std::uint64_t key, const Frame& frame, TimePoint now) {
  std::vector<std::string> addresses;
  std::string host;
  if (const Session* const known = session_of_name(frame.message.name);
      known != nullptr && known->link != 0) {
    addresses = known->told_addresses;
    host = known->peer_host;
  }
  if (addresses.size() > kAddressesMax) addresses.resize(kAddressesMax);
  Message found = encode_addresses(addresses, host);
  found.name = frame.message.name;
  enqueue(sessions_.at(key), FrameKind::kFound, 0,
          std::make_shared<const Message>(std::move(found)), now);
}

void PeerCore::add_address(std::string address, TimePoint now) {
  addresses_.push_back(std::move(address));
  for (auto& [key, session] : sessions_) {
    if (session.link != 0) tell_addresses(session, now);
  }
}

void PeerCore::tell_addresses(Session& session, TimePoint now) {
  std::vector<std::string> told = addresses_;
  if (told.size() > kAddressesMax) told.resize(kAddressesMax);
  Message message = encode_addresses(told, options_.host);
  message.name = options_.name;
  enqueue(session, FrameKind::kFound, 0, std::make_shared<const Message>(std::move(message)), now);
}

void PeerCore::note_addresses(Session& session, const std::vector<std::string>& addresses) {
  const bool is_same_host = !options_.host.empty() && session.peer_host == options_.host;
  session.peer_addresses.clear();
  for (const std::string& address : addresses) {
    session.peer_addresses.push_back(without_wildcard(address, links_.at(session.link).remote));
  }
  session.told_addresses = is_same_host ? addresses : session.peer_addresses;
  add_routes(session.peer_name, session.peer_addresses, session.peer_host);
}

void PeerCore::on_found(std::uint64_t key, const Frame& frame, TimePoint now) {
  Session& teller = sessions_.at(key);
  if (teller.link == 0) return;
  if (frame.message.name == teller.peer_name) {
    const Result<FoundPeer> own = decode_found(frame.message);
    if (own.ok()) note_addresses(teller, own->addresses);
    return;
  }
  const auto place = wanted_.find(frame.message.name);
  if (place == wanted_.end() || std::erase(place->second.to_answer, key) == 0) return;
  Result<FoundPeer> found = decode_found(frame.message);
  if (!found.ok()) return;
  std::string& known_by = place->second.known_by;
  if (!found->addresses.empty() || !found->host.empty()) {
    known_by = teller.peer_name;
  } else if (known_by == teller.peer_name) {
    known_by.clear();
  }
  if (found->addresses.empty()) return;
  for (std::string& address : found->addresses) {
    address = without_wildcard(address, links_.at(teller.link).remote);
  }
  add_routes(place->first, found->addresses, found->host);
  for (auto& [address, route] : routes_) {
    if (route.peer == place->first) route.next_try = std::min(route.next_try, now);
  }
  step_routes(now);
}

std::string PeerCore::dial_failures(const std::string& peer) const {
  std::string text;
  for (const auto& [address, route] : routes_) {
    if (route.last.ok() || (!route.peer.empty() && route.peer != peer)) continue;
    if (!text.empty()) text += "; ";
    text += route.last.message();
  }
  return text.empty() ? "it is not connected" : text;
}

Status PeerCore::unknown_reason(const std::string& name, const Wanted& wanted,
                                std::optional<Duration>& fails_after, TimePoint now) const {
  fails_after.reset();
  Status refusal;
  bool is_silent = false;
  bool may_answer = false;
  const Duration patience = std::max(options_.find_timeout, options_.dead_after);
  for (const auto& [address, route] : routes_) {
    if (route.peer == name && !route.is_refused) {
      // An address from other peers may lead to a frozen process, whose socket still accepts
      // connections.
      if (!route.is_explicit && now - wanted.since < patience) return {};
      (route.is_explicit ? may_answer : is_silent) = true;
      continue;
    }
    if (!route.is_explicit) continue;
    if (route.is_refused) {
      refusal = route.last;
    } else if (route.peer.empty()) {
      may_answer = true;  // it may be the peer in question
    }
  }
  if (may_answer) {
    fails_after = options_.reach_timeout;
    return unavailable(
        "'{}' was not reached within {} s: {}; start it, or connect() to where it is", name,
        to_seconds(options_.reach_timeout), dial_failures(name));
  }
  if (is_silent) {
    fails_after = Duration::zero();
    return unavailable("'{}' has not answered for {} s: {}", name, to_seconds(patience),
                       dial_failures(name));
  }
  std::string known;
  std::size_t count = 0;
  for (const auto& [key, session] : sessions_) {
    if (session.link == 0) continue;
    known += format("{}'{}'", count == 0 ? "" : ", ", session.peer_name);
    if (++count == 8) break;
  }
  if (count == 0 && !refusal.ok()) {
    fails_after = Duration::zero();
    return refusal;
  }
  if (now - wanted.since >= options_.find_timeout) fails_after = Duration::zero();
  if (count == 0) {
    return not_found(
        "no peer '{}' is known, and '{}' is connected to none; connect() to one that "
        "knows it",
        name, options_.name);
  }
  if (!wanted.known_by.empty()) {
    return not_found(
        "'{}' is connected to '{}', which told no address of it that '{}' can reach: it does not "
        "listen, or only for its own host",
        name, wanted.known_by, options_.name);
  }
  return not_found(
      "no peer '{}' is known to '{}', nor to those it is connected to: {}; see that it runs, and "
      "has connected to one of them",
      name, options_.name, known);
}

void PeerCore::step_wanted(TimePoint now) {
  std::vector<std::pair<CallId, Status>> refused;
  for (auto& [name, wanted] : wanted_) {
    std::optional<Duration> fails_after;
    const Status why = unknown_reason(name, wanted, fails_after, now);
    for (const CallId call : wanted.calls) {
      if (fails_after && now - calls_.at(call).waits_since >= *fails_after) {
        refused.emplace_back(call, why);
      }
    }
    if (fails_after == Duration::zero()) continue;
    if (now - wanted.last_asked >= kAskPause) {
      ask_for(name, wanted, now);
    } else {
      tick_by(wanted.last_asked + kAskPause);
    }
  }
  for (const auto& [call, why] : refused) {
    if (calls_.contains(call)) end_call(call, why, CallResult::Kind::kFailed, now);
  }
}

}  // namespace reverie
