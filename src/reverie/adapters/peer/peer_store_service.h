// PeerStoreService: a store for clients on the same machine that use Reverie's own protocol
// (store_wire.h).
//
//     PeerStoreClient --shared memory--> StoreConnection --> ReplayService
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
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
#include "reverie/service/served_checkpoints.h"

namespace reverie {

struct PeerStore;
class StoreConnection;

struct PeerStoreServiceOptions {
  std::string token;  // that clients must prove to have; empty: none is required
  // The chunks that one writer keeps for later items.
  std::size_t kept_bytes_max = std::size_t{4} << 30;
  // The rows and columns of one message.
  std::size_t message_bytes_max = std::size_t{1} << 30;
  // The chunks that are kept for samples that one client has not returned; beyond that, its samples
  // are copied.
  std::size_t leased_bytes_max = std::size_t{1} << 30;
  // A budget shared by all clients, which the chunks of writers count towards. Null: no such bound.
  std::shared_ptr<ByteBudget> in_flight = nullptr;
  // With kLz4 or kZstd, chunks that are still raw are compressed when their writer releases them.
  CodecChoice codec = CodecChoice::kAuto;
  ServedCheckpoints checkpoints = {};
  // Shared with other services of the store; null: its own.
  std::shared_ptr<InsertSessions> sessions = nullptr;
  Clock* clock = nullptr;  // the clock of the service's deadlines; null: the system's
  // How long a connection may take for its handshake, from then on until its first request, and
  // without any request in progress. Then its client is notified and it is closed; when descriptors
  // run out, the one that has been without a request longest is.
  struct Timeouts {
    Duration hello = std::chrono::seconds(20);
    Duration first_call = std::chrono::seconds(20);
    Duration idle = std::chrono::minutes(10);
  };
  Timeouts timeouts = {};
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
  // Waits until `service` has listed its tables, which must not change afterwards. `loops` outlives
  // this.
  static Result<std::unique_ptr<PeerStoreService>> make(
      std::shared_ptr<ReplayService> service, LinkLoops& loops,
      const PeerStoreServiceOptions& options = {});
  // close().
  ~PeerStoreService();

  // The protocol, for a door.
  DoorProtocol protocol();
  // Serves a connection that a door has accepted, or whose other end is a client in this process.
  void serve(AcceptedConnection incoming);
  // Ends all connections. None is served after it returns, unless it was called on one of their
  // threads. Idempotent. The owner closes the store.
  void close();

  PeerStoreFigures figures() const;

 private:
  // Notified by connections when they end.
  struct Open {
    Open(LinkLoops& the_loops, const PeerStoreServiceOptions::Timeouts& the_timeouts)
        : loops(the_loops), timeouts(the_timeouts) {}
    struct One {
      std::shared_ptr<StoreConnection> connection;
      IoLoop* loop = nullptr;
    };
    // The connection that has been without a request for longest; null if all have requests.
    const One* longest_idle() REVERIE_REQUIRES(mutex);
    std::optional<TimePoint> idle_since();
    // Closes it; false if all have requests.
    bool close_longest_idle();

    LinkLoops& loops;
    const PeerStoreServiceOptions::Timeouts timeouts;
    Mutex mutex;
    std::vector<One> connections REVERIE_GUARDED_BY(mutex);
    bool is_closed REVERIE_GUARDED_BY(mutex) = false;
  };
  PeerStoreService(std::shared_ptr<PeerStore> store, LinkLoops& loops,
                   const PeerStoreServiceOptions::Timeouts& timeouts)
      : store_(std::move(store)), open_(std::make_shared<Open>(loops, timeouts)) {}

  static void serve(const std::shared_ptr<PeerStore>& store, const std::shared_ptr<Open>& open,
                    AcceptedConnection incoming);

  const std::shared_ptr<PeerStore> store_;
  const std::shared_ptr<Open> open_;
};

}  // namespace reverie
