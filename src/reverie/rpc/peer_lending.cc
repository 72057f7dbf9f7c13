// The part of PeerCore that concerns memory outside of messages: which run shares this host, when
// what was lent to it is read, and which arrays belong to callers.
//
// Tested in tests/sim/peers_sim_test.cc, peer_test.cc and src/reverie/calls/device_tensors_test.cc.
#include <algorithm>
#include <memory>
#include <utility>

#include "reverie/rpc/peer_core.h"

namespace reverie {
namespace {

// A run may prove that it is on this host for this long after its link was opened or lost: the Unix
// socket is dialled as soon as a link over TCP is open.
constexpr Duration kHostProofMax = std::chrono::seconds(1);

}  // namespace

Status keep_bulk(Payload& payload, Allocator& memory) {
  for (BulkPiece& piece : payload.bulk) {
    if (!piece.may_change) continue;
    REVERIE_ASSIGN_OR_RETURN(Buffer buffer, memory.allocate(piece.bytes.size()));
    const auto copy = std::make_shared<Buffer>(std::move(buffer));
    std::copy(piece.bytes.begin(), piece.bytes.end(), copy->data());
    piece = {copy->bytes(), copy, false};
  }
  return {};
}

void PeerCore::keep_arrays(const Session& session, Session::Queued& queued, const Call& call,
                           TimePoint now) {
  if (keep_bulk(call.message->payload, Allocator::heap()).ok()) return;
  // A frame that is sent in part ends with its connection, and is not sent again.
  queued.header.kind = FrameKind::kCancel;
  queued.message = std::make_shared<const Message>();
  drop_link(session.link, resource_exhausted("no memory for a copy of a call's arrays"), now);
}

void PeerCore::mark(std::uint64_t key, const Session& session, Frame& frame) {
  Payload& payload = frame.message.payload;
  payload.is_from_host = session.is_host_proved;
  if (!frame.header.lends) return;
  payload.receipt = std::make_shared<Receipt>(
      effects_.on_receipt({key, frame.header.call}, frame.header.kind), key, session.life);
}

Neighbour PeerCore::neighbour_of(std::uint64_t key, bool may_prove, TimePoint now) const {
  const Session& session = sessions_.at(key);
  const Link* const link = session.link == 0 ? nullptr : &links_.at(session.link);
  // Between two links, or before the one over the Unix socket, there is none that can prove it. In
  // the handshake it is not known yet.
  const bool is_unknown = link == nullptr && session.peer_addresses.empty();
  const bool has_socket = (link != nullptr && link->address.starts_with("unix:")) ||
                          std::ranges::any_of(session.peer_addresses, is_abstract);
  const bool is_near = is_unknown || (session.peer_host == options_.host && has_socket);
  const bool is_late =
      now - (link == nullptr ? session.link_lost_at : link->joined) >= kHostProofMax;
  const bool may_follow =
      may_prove && options_.uses_unix && !options_.host.empty() && is_near && !is_late;
  Neighbour found;
  found.session = key;
  found.name = session.peer_name;
  if (session.peer_nonce != 0) found.secret = session.nonce ^ session.peer_nonce;
  found.is_proved = session.is_host_proved;
  // A link that shares no memory may have followed one that did.
  if (link != nullptr && !link->is_host_proved && !may_follow) found.is_proved = false;
  found.may_be_proved = may_follow && !found.is_proved;
  return found;
}

Neighbour PeerCore::neighbour(const std::string& peer, bool may_prove, TimePoint now) const {
  const auto found = session_by_name_.find(peer);
  if (found == session_by_name_.end()) return {};
  return neighbour_of(found->second, may_prove, now);
}

Neighbour PeerCore::neighbour(InboundId request, bool may_prove, TimePoint now) const {
  if (!sessions_.contains(request.session)) return {};
  return neighbour_of(request.session, may_prove, now);
}

void PeerCore::host_proved(LinkId id) {
  const auto place = links_.find(id);
  if (place == links_.end()) return;
  Link& link = place->second;
  const auto session = sessions_.find(link.session);
  if (session != sessions_.end()) session->second.is_host_proved = link.is_host_proved = true;
}

void PeerCore::copied(InboundId message, FrameKind kind, TimePoint now) {
  const auto place = sessions_.find(message.session);
  if (place == sessions_.end()) return;
  enqueue(place->second,
          kind == FrameKind::kCall ? FrameKind::kArgumentsCopied : FrameKind::kAnswerCopied,
          message.call, std::make_shared<const Message>(), now);
}

}  // namespace reverie
