// The state that the connections of a store's clients share: the store, and facts about its tables.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/codec/codec.h"
#include "reverie/door/byte_budget.h"
#include "reverie/native_wire/chunk_arena.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/served_checkpoints.h"

namespace reverie {

struct PeerStore {
  struct Table {
    wire::ColumnNames names;
    // Whether samples that were drawn for a client and not sent are undone when it disconnects.
    bool undoes_unsent = false;
    // Whether the service must be told which samples arrived (ReplayService::receive).
    bool keeps_receipts = false;
  };

  PeerStore(std::shared_ptr<ReplayService> the_service, Clock& the_clock)
      : service(std::move(the_service)), clock(the_clock), arena(chunk_allocator(*service)) {}

  // The memory for writers' chunks: the service's own, or an arena that clients can map.
  Allocator& chunk_memory() {
    return service->chunk_memory() != nullptr ? chunk_allocator(*service) : arena;
  }

  const Table& find(std::string_view table) const {
    const auto found = tables.find(table);
    return found == tables.end() ? unknown : found->second;
  }

  const std::shared_ptr<ReplayService> service;
  Clock& clock;
  ChunkArena arena;
  // Fixed once the service is made.
  std::map<std::string, Table, std::less<>> tables;
  Table unknown;
  std::string token;
  CodecChoice codec = CodecChoice::kAuto;
  std::size_t kept_bytes_max = 0;     // of chunks that one writer keeps for later items
  std::size_t message_bytes_max = 0;  // of the bulk of one frame
  std::size_t leased_bytes_max = 0;   // of chunks that are kept for one client's samples
  std::shared_ptr<ByteBudget> in_flight;
  std::shared_ptr<InsertSessions> sessions;
  std::function<std::uint64_t()> random = random_seed;  // fresh random bits
  ServedCheckpoints checkpoints;

  // Counted since the start.
  std::atomic<std::uint64_t> inserts{0};
  std::atomic<std::uint64_t> samples{0};         // sent
  std::atomic<std::uint64_t> unsent_samples{0};  // drawn for a client that disconnected, and lost
  std::atomic<std::uint64_t> undone_samples{0};  // drawn for such a client, and undone
  std::atomic<std::uint64_t> connections{0};     // open ones
  std::atomic<std::uint64_t> leased_bytes{0};    // of chunks that are kept for clients now
};

}  // namespace reverie
