// ReverbService: a store for the clients of dm-reverb.
//
//     dm-reverb client --gRPC--> GrpcServer --> ReverbService --> ReplayService
// Implements each method of Reverb's service on the asynchronous ReplayService, with Reverb's
// status codes and the error texts that its clients match. docs/reverb_compatibility.md lists the
// differences.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/codec/codec.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/served_checkpoints.h"

namespace reverie {

struct ReverbServiceOptions {
  // The cache of chunks that an embedded writer made, encoded for Reverb's clients.
  std::size_t cache_bytes_max = std::size_t{64} << 20;
  // The chunks that one writer's stream keeps for later items.
  std::size_t kept_bytes_max = std::size_t{4} << 30;
  // A budget shared by all streams, which the chunks that they keep count towards. Null: no such
  // bound.
  std::shared_ptr<ByteBudget> in_flight = nullptr;
  // With kLz4 or kZstd, raw chunks are compressed on arrival, on the thread of their connection; a
  // column that would not become smaller stays raw.
  CodecChoice codec = CodecChoice::kAuto;
  ServedCheckpoints checkpoints = {};
  // Shared with other services of the store; null: its own.
  std::shared_ptr<InsertSessions> sessions = nullptr;
  Clock* clock = nullptr;  // the clock of the service's deadlines; null: the system's
  std::optional<std::uint64_t> seed = {};  // for the id by which clients notice a restart
};

struct ReverbFigures {
  std::uint64_t inserts = 0;  // confirmed, priority updates by insert included
  std::uint64_t samples = 0;  // written to clients
  // Drawn for clients that disconnected before they were written: they count as sampled.
  std::uint64_t unsent_samples = 0;
  // The same for tables with undoes_unsent: these items are in their table again.
  std::uint64_t undone_samples = 0;
};

struct ReverbStore;

// Thread-safe.
class ReverbService {
 public:
  // Waits until `service` has listed its tables, which must not change afterwards.
  static Result<std::unique_ptr<ReverbService>> make(std::shared_ptr<ReplayService> service,
                                                     const ReverbServiceOptions& options = {});

  // Adds the methods, which own what they need: the server may outlive this object.
  void add_to(GrpcServer& server) const;

  // Closes the store, and ends every stream as Reverb's server does when it stops: writers get an
  // error that they retry, samplers are cancelled. Idempotent.
  void close();

  ReverbFigures figures() const;

 private:
  explicit ReverbService(std::shared_ptr<ReverbStore> store) : store_(std::move(store)) {}

  std::shared_ptr<ReverbStore> store_;
};

// One method for each kind of call, in the form that GrpcServer takes; for tests without a socket.
GrpcMethod reverb_insert_stream(std::shared_ptr<ReverbStore> store);
GrpcMethod reverb_sample_stream(std::shared_ptr<ReverbStore> store);

}  // namespace reverie
