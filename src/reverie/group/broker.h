// The broker of groups: a peer that all members connect to, and that tells them the membership.
//
//     REVERIE_ASSIGN_OR_RETURN(auto broker, Broker::make(peer));     // peer->name() == "broker"
//     REVERIE_RETURN_IF_ERROR(peer->listen("0.0.0.0:4431"));
// It carries no data and keeps nothing on disk: after a restart it learns its groups again from
// their members. docs/concepts/groups.md lists the guarantees.
#pragma once

#include <memory>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/group/broker_core.h"
#include "reverie/rpc/peer.h"

namespace reverie {

// Thread-safe. A thin shell around BrokerCore: a lock, and a thread for its timers.
class Broker {
 public:
  // ALREADY_EXISTS if the peer is a broker.
  static Result<std::unique_ptr<Broker>> make(std::shared_ptr<Peer> peer);
  // Closes. Must not run on the peer's I/O thread.
  ~Broker();
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // The state of each group that has members.
  std::vector<GroupInfo> groups() const;
  // Idempotent. The peer continues; members look for another broker of its name.
  void close();

  class Impl;

 private:
  Broker(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl);
  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<Impl> impl_;
};

}  // namespace reverie
