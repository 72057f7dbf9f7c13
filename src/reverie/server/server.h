// Server: tables, and the network services in front of them.
//
//     Server = LocalService + ReverbService + PeerStoreService + GrpcServer on threads of its own
//
// Clients on the same machine may speak our own protocol (PeerStoreService) at the same addresses;
// their first bytes tell.
// It listens at loopback unless it is given a secret (GrpcServerOptions), and refuses a port that
// is in use. Without TLS each TCP address has a Unix socket beside it for this user's clients on
// the same machine (net/local_door.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/peer_store_service.h"
#include "reverie/adapters/reverb/reverb_service.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/checkpoint/checkpoint_worker.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/net/io_threads.h"
#include "reverie/replay/local_service.h"

namespace reverie {

struct ServerOptions {
  StoreOptions store = {};
  // Where to load the store from, and where to write checkpoints; no value: no checkpoints.
  std::optional<checkpoint::WorkerOptions> checkpoints = {};
  // "localhost:0" takes a free port. At least one.
  std::vector<std::string> addresses = {"localhost:0"};
  GrpcServerOptions grpc = {};
  ReverbServiceOptions reverb = {};
  // A bound on what is held for all clients: received and outgoing messages and samples drawn
  // for them, beyond a megabyte per connection, and chunks that writers have sent for future
  // items. The bounds per client are in `grpc` and `reverb`. No value: an eighth of the
  // memory.
  std::optional<std::size_t> in_flight_bytes_max = {};
  std::size_t io_thread_count = 2;
  // Whether clients on the same machine may speak our own protocol.
  bool serves_peers = true;
  // See PeerStoreServiceOptions.
  std::size_t peers_leased_bytes_max = std::size_t{1} << 30;
};

// Thread-safe.
class Server {
 public:
  // INVALID_ARGUMENT for invalid tables or a malformed address, PERMISSION_DENIED or the like for
  // an address that others could reach, ALREADY_EXISTS for a port in use, RESOURCE_EXHAUSTED if the
  // system has no threads for it.
  static Result<std::unique_ptr<Server>> open(std::vector<TableOptions> tables,
                                              ServerOptions options);
  // Whether open() may succeed: does everything except listening, so a port in use is not noticed.
  static Status check(std::vector<TableOptions> tables, ServerOptions options);
  // Calls stop() without grace.
  ~Server();

  const std::shared_ptr<LocalService>& store() const { return store_; }
  // The addresses that it listens at, with the chosen ports.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // The port of the first address; 0 for a Unix socket.
  std::uint16_t port() const { return port_; }
  ReverbFigures figures() const { return reverb_->figures(); }
  // The figures of its connections. Any thread.
  GrpcServerFigures connections() const { return grpc_.figures(); }
  // The figures of clients that speak our own protocol.
  PeerStoreFigures peers() const { return peers_ ? peers_->figures() : PeerStoreFigures(); }

  // Ends all waiting calls: writers get UNAVAILABLE, so that they try again, samplers
  // CANCELLED. Then ends the connections, which get up to `grace` to receive what was written.
  // Idempotent.
  void stop(Duration grace = Duration::zero());

 private:
  static Result<std::unique_ptr<Server>> make(std::vector<TableOptions> tables,
                                              ServerOptions options);
  Server(std::shared_ptr<LocalService> store, std::unique_ptr<ReverbService> reverb,
         const ServerOptions& options);

  ForkGuard fork_guard_;
  std::shared_ptr<LocalService> store_;
  std::unique_ptr<ReverbService> reverb_;
  IoThreads io_threads_;
  LinkLoops link_loops_;
  std::unique_ptr<PeerStoreService> peers_;  // null if they are not served
  GrpcServer grpc_;
  std::vector<std::string> addresses_;
  std::uint16_t port_ = 0;
  Mutex stop_mutex_;  // held while stopping: a second caller waits until it is done
};

}  // namespace reverie
