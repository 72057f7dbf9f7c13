// ReverbService: a store for the clients of dm-reverb.
//
//     dm-reverb client --gRPC--> GrpcServer --> ReverbService --> ReplayService
//
// Each method of Reverb's service on the asynchronous door, with Reverb's status codes and the
// texts that its clients look for. What differs is told in docs/reverb_compatibility.md.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "reverie/base/clock.h"
#include "reverie/codec/codec.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct ReverbServiceOptions {
  // The cache of chunks that an embedded writer made, encoded for Reverb's clients.
  std::size_t cache_bytes_max = std::size_t{64} << 20;
  // The chunks that one writer's stream keeps for items to come.
  std::size_t kept_bytes_max = std::size_t{4} << 30;
  // A budget shared by all streams: the chunks that they keep count here too. Null: no such bound.
  std::shared_ptr<ByteBudget> in_flight = nullptr;
  // With kLz4 or kZstd raw chunks that writers send are compressed when they come, on the thread of
  // their connection, and each column stays raw where that does not make it smaller.
  CodecChoice codec = CodecChoice::kAuto;
  // Writes a checkpoint and reports its path, at any time, from any thread. Without it there are
  // none.
  std::function<void(std::function<void(Result<std::string>)>)> checkpoint = {};
  // Shared with the other doors to the store; null: its own.
  std::shared_ptr<InsertSessions> sessions = nullptr;
  Clock* clock = nullptr;  // that the service's deadlines are on; null: the system's
  std::optional<std::uint64_t> seed = {};  // of the id that tells clients of a restart
};

struct ReverbFigures {
  std::uint64_t inserts = 0;  // confirmed, priority updates by insert included
  std::uint64_t samples = 0;  // written to clients
  // Drawn for clients that went away before they were written: they count as sampled.
  std::uint64_t unsent_samples = 0;
  // Drawn likewise, of tables with undoes_unsent: they are in their table again.
  std::uint64_t undone_samples = 0;
};

struct ReverbStore;

// Thread-safe.
class ReverbService {
 public:
  // Asks `service` for its tables, which stay as they are from then on: waits for the answer.
  static Result<std::unique_ptr<ReverbService>> make(std::shared_ptr<ReplayService> service,
                                                     const ReverbServiceOptions& options = {});

  // Adds the methods. They hold what they need: the server may outlive this object.
  void add_to(GrpcServer& server) const;

  // Closes the store, and ends every stream as Reverb's server does when it stops: writers are to
  // try again, samplers are cancelled. Idempotent.
  void close();

  ReverbFigures figures() const;

 private:
  using Checkpoint = decltype(ReverbServiceOptions::checkpoint);
  ReverbService(std::shared_ptr<ReverbStore> store, Checkpoint checkpoint)
      : store_(std::move(store)), checkpoint_(std::move(checkpoint)) {}

  std::shared_ptr<ReverbStore> store_;
  Checkpoint checkpoint_;
};

// One method for each kind of call, as GrpcServer takes them; for tests without a socket.
GrpcMethod reverb_insert_stream(std::shared_ptr<ReverbStore> store);
GrpcMethod reverb_sample_stream(std::shared_ptr<ReverbStore> store);

}  // namespace reverie
