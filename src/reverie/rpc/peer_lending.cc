// The part of PeerCore that concerns memory outside of messages: which run shares this host, when
// what was lent to it is read, and which arrays belong to callers.
//
// Tested in tests/sim/peers_sim_test.cc, peer_test.cc and src/reverie/calls/device_tensors_test.cc.
#include <algorithm>
#include <memory>
#include <utility>

#include "reverie/rpc/peer_core.h"
#include "reverie/tensor/buffer.h"

namespace reverie {
namespace {

// An abstract Unix socket: shared memory begins with one.
bool is_abstract(const std::string& address) {
  return address.starts_with("unix:@");
}

// False if there is no memory.
bool keep_bulk(Payload& payload) {
  for (BulkPiece& piece : payload.bulk) {
    if (!piece.may_change) continue;
    Result<Buffer> buffer = Allocator::heap().allocate(piece.bytes.size());
    if (!buffer.ok()) return false;
    const auto copy = std::make_shared<Buffer>(std::move(*buffer));
    std::copy(piece.bytes.begin(), piece.bytes.end(), copy->data());
    piece = {copy->bytes(), copy, false};
  }
  return true;
}

}  // namespace

void PeerCore::keep_arrays(const Session& session, Session::Queued& queued, const Call& call,
                           TimePoint now) {
  if (keep_bulk(call.message->payload)) return;
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

Neighbour PeerCore::neighbour_of(std::uint64_t key) const {
  const Session& session = sessions_.at(key);
  Neighbour found{key, session.peer_name, session.is_host_proved, false};
  if (found.is_proved || options_.host.empty()) return found;
  // Between two links, or before the one over the Unix socket, there is none that can prove it. In
  // the handshake it is not known yet.
  const bool is_unknown = session.link == 0 && session.peer_addresses.empty();
  found.may_be_proved = options_.uses_unix &&
                        (is_unknown || (session.peer_host == options_.host &&
                                        std::ranges::any_of(session.peer_addresses, is_abstract)));
  return found;
}

Neighbour PeerCore::neighbour(const std::string& peer) const {
  const auto found = session_by_name_.find(peer);
  return found == session_by_name_.end() ? Neighbour() : neighbour_of(found->second);
}

Neighbour PeerCore::neighbour(InboundId request) const {
  return sessions_.contains(request.session) ? neighbour_of(request.session) : Neighbour();
}

void PeerCore::host_proved(LinkId link) {
  const auto place = links_.find(link);
  if (place == links_.end()) return;
  const auto session = sessions_.find(place->second.session);
  if (session != sessions_.end()) session->second.is_host_proved = true;
}

void PeerCore::copied(InboundId message, FrameKind kind, TimePoint now) {
  const auto place = sessions_.find(message.session);
  if (place == sessions_.end()) return;
  enqueue(place->second,
          kind == FrameKind::kCall ? FrameKind::kArgumentsCopied : FrameKind::kAnswerCopied,
          message.call, std::make_shared<const Message>(), now);
}

}  // namespace reverie
