// PeerStoreService: a store for clients on the same machine that speak our own protocol
// (store_wire.h).
//
//     PeerStoreClient --shared memory--> StoreConnection --> ReplayService
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/codec/codec.h"
#include "reverie/door/byte_budget.h"
#include "reverie/door/door.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct PeerStore;
class StoreConnection;

struct PeerStoreServiceOptions {
  std::string token;  // that clients must prove to have; empty: none is asked for
  // The chunks that one writer keeps for items to come.
  std::size_t kept_bytes_max = std::size_t{4} << 30;
  // Rows and columns of one message.
  std::size_t message_bytes_max = std::size_t{1} << 30;
  // Chunks that are kept for what one client sampled and has not let go; beyond, its samples are
  // copied.
  std::size_t leased_bytes_max = std::size_t{1} << 30;
  // A budget shared with all other clients: what writers keep counts here too. Null: no such bound.
  std::shared_ptr<ByteBudget> in_flight = nullptr;
  // With kLz4 or kZstd chunks that writers leave raw are compressed when they let them go.
  CodecChoice codec = CodecChoice::kAuto;
  // Writes a checkpoint and reports its path. Without it there are none.
  std::function<void(std::function<void(Result<std::string>)>)> checkpoint = {};
  // Shared with the other doors to the store; null: its own.
  std::shared_ptr<InsertSessions> sessions = nullptr;
  Clock* clock = nullptr;  // that the service's deadlines are on; null: the system's
  // How long a connection may take to say who it is.
  Duration hello_timeout = std::chrono::seconds(20);
};

struct PeerStoreFigures {
  std::uint64_t inserts = 0;
  std::uint64_t samples = 0;
  std::uint64_t unsent_samples = 0;
  std::uint64_t undone_samples = 0;
  std::uint64_t connections = 0;
  std::uint64_t leased_bytes = 0;
};

// Thread-safe.
class PeerStoreService {
 public:
  // Asks `service` for its tables, which stay as they are: waits for the answer. `loops` outlives
  // this.
  static Result<std::unique_ptr<PeerStoreService>> make(
      std::shared_ptr<ReplayService> service, LinkLoops& loops,
      const PeerStoreServiceOptions& options = {});
  // close().
  ~PeerStoreService();

  // As a door takes it.
  DoorProtocol protocol();
  // Serves a connection that came through a door, or a client in this process has the other end of.
  void serve(DoorGuest guest);
  // Ends all connections. On return none is served any more, unless called on one of their threads.
  // Idempotent. The store is closed by its owner.
  void close();

  PeerStoreFigures figures() const;

 private:
  // What connections tell of their end.
  struct Open {
    Mutex mutex;
    std::vector<std::shared_ptr<StoreConnection>> connections REVERIE_GUARDED_BY(mutex);
    bool is_closed REVERIE_GUARDED_BY(mutex) = false;
  };
  PeerStoreService(std::shared_ptr<PeerStore> store, Duration hello_timeout)
      : store_(std::move(store)), hello_timeout_(hello_timeout) {}

  static void serve(const std::shared_ptr<PeerStore>& store, const std::shared_ptr<Open>& open,
                    Duration hello_timeout, DoorGuest guest);

  const std::shared_ptr<PeerStore> store_;
  const Duration hello_timeout_;
  const std::shared_ptr<Open> open_ = std::make_shared<Open>();
};

}  // namespace reverie
