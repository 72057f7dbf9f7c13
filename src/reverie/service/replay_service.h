// ReplayService: the interface of a store.
//
// All inserts, samples and updates go through this interface; behind it is the store in this
// process, a server behind a socket, or a simulation of either. It is asynchronous, so that an
// event loop can use it, and it answers inline: a request that can be served now completes on the
// caller's thread before the call returns, without a wake-up.
//
//     service.sample(request, [](SampleResult result) { ... });
//
// Promises of every implementation (tests/conformance/replay_service_suite.h holds them to it):
// - Each request completes exactly once, and no completion runs under a lock of the service.
// - All arguments of a request are checked before anything is applied. Admission then goes item by
//   item, as one-by-one calls would. At the deadline or a cancel, the result says what was applied;
//   samples already drawn are in it, never lost.
// - Requests of one kind on one table are served in the order of their arrival, except that a
//   sample that lacks distinct items lets others pass; inserts and samples alternate, so neither
//   starves the other.
// - A deadline ends a request that a bound of its table holds back, never one that could be served
//   and only waits for its turn: a deadline that has passed means: do what can be done at once.
// - Spans in a request are read before the call returns.
//
// How gRPC, shared memory, journal, checkpoint and simulation use it:
// docs/decisions/0001-the-door.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/number_set.h"
#include "reverie/base/status.h"
#include "reverie/record/item.h"
#include "reverie/record/table_info.h"
#include "reverie/service/ahead_readers.h"
#include "reverie/service/sample_batch.h"
#include "reverie/tensor/block_heap.h"
#include "reverie/tensor/chunk_memory.h"

namespace reverie {

// Identifies a request for cancel(). 0: it completed before its call returned.
using RequestId = std::uint64_t;

// The numbers of items, from a writer that numbers items so that it can resend
// them.
struct ItemNumbers {
  std::string_view session = {};  // empty: no numbers
  std::uint64_t first = 0;        // number of the first item; the others follow
};

// What a writer has inserted and may still resend.
struct SessionNumbers {
  std::string session;
  NumberSet in;
};

struct InsertRequest {
  std::string_view table = {};
  std::span<Item> items = {};  // moved from, unless the request is refused as a whole
  TimePoint deadline = TimePoint::max();
  // The number of the writer, for one that puts rows of its chunks into several tables. A remote
  // service then sends all items of this writer on one stream, each chunk once, in order for each
  // table; its earlier items must be inserted. 0: no particular writer.
  std::uint64_t writer = 0;
  // A durable service keeps them with the items; see known_sessions().
  ItemNumbers numbers = {};
  // Whether the calling thread only waits for the result.
  bool is_waited_for = false;
};

struct InsertResult {
  Status status;
  // The first `applied` items are inserted; those whose key existed were updated.
  std::size_t applied = 0;
  // They are in memory, and not in the store's log, which has failed.
  bool is_unlogged = false;
};

struct SampleRequest {
  std::string_view table = {};
  std::size_t count = 1;
  // Completes once this many are drawn and no more can be drawn at once; `count` waits for all.
  std::size_t min_count = 1;
  // No item twice within the request. Requires min_count <= what the table can ever hold.
  bool distinct = false;
  // Whether a brief batch is enough (sample_batch.h). A service may return more.
  bool brief = false;
  // Whether the batch should contain the probability of the table's least likely item, if the
  // service and the sampler can tell: SampleBatch::least_probability().
  bool wants_least = false;
  // Whether receive() will be called once the draws have arrived at their reader. See there.
  bool awaits_receipt = false;
  TimePoint deadline = TimePoint::max();
  // A waiting sample request of the same reader on the same table that this one should follow: a
  // remote service begins with this one as soon as that one is served, and cancelling either may
  // cancel both. 0: none.
  RequestId follows = 0;
  // Filled and returned in the result; a batch of an earlier call may be reused. If empty, a new
  // one is made.
  SampleBatch batch = {};
};

// One draw of an item: the ticket of the item, and which of its draws it is.
struct DrawId {
  std::uint64_t ticket = 0;  // packed
  std::int32_t times_sampled = 0;
};

// Those of a batch that is not brief: of the draws with these indices, [begin, end), or all.
inline std::vector<DrawId> draws_of(const SampleBatch& batch, std::span<const std::size_t> at) {
  std::vector<DrawId> draws;
  draws.reserve(at.size());
  for (const std::size_t i : at) draws.push_back({batch.tickets()[i], batch.times_sampled()[i]});
  return draws;
}
inline std::vector<DrawId> draws_of(const SampleBatch& batch, std::size_t begin, std::size_t end) {
  std::vector<DrawId> draws;
  draws.reserve(end - begin);
  for (std::size_t i = begin; i < end; ++i) {
    draws.push_back({batch.tickets()[i], batch.times_sampled()[i]});
  }
  return draws;
}
inline std::vector<DrawId> draws_of(const SampleBatch& batch) {
  return draws_of(batch, 0, batch.size());
}

struct SampleResult {
  Status status;  // why draws are missing; ok if there are at least min_count
  SampleBatch batch;
};

// A draw that its reader could not decode.
struct CorruptItem {
  ItemKey key = 0;
  ChunkKey chunk = 0;  // the damaged one; 0 if the reader does not know its key
  std::string why;
};

// Corrupt items, deletions, priorities by ticket and by key: applied in this order. Corrupt items
// are removed one by one, each of the other lists atomically in blocks of some hundreds.
struct MutateRequest {
  std::string_view table = {};
  std::span<const ItemKey> deletes = {};
  std::span<const std::uint64_t> tickets = {};  // packed
  std::span<const double> ticket_priorities = {};
  std::span<const ItemKey> keys = {};
  std::span<const double> key_priorities = {};
  // These are removed from their table, counted and logged; their draws are undone.
  std::span<const CorruptItem> corrupt = {};
  // As in InsertRequest.
  bool is_waited_for = false;
};

struct MutateResult {
  Status status;
  std::size_t updated = 0;
  std::size_t deleted = 0;
  std::size_t missing = 0;  // missing keys and stale tickets: ignored, and counted
};

struct LookupRequest {
  std::string_view table = {};
  std::span<const ItemKey> keys = {};
};

struct LookupResult {
  Status status;
  std::vector<double> priorities;      // one per key; NaN if there is no such item
  std::vector<std::uint64_t> tickets;  // packed; 0 if there is no such item
};

// Thread-safe. Outlives its requests: destroying a service completes what is pending with
// CANCELLED.
class ReplayService {
 public:
  template <typename T>
  using Done = std::function<void(T)>;

  virtual ~ReplayService() = default;

  virtual RequestId insert(InsertRequest request, Done<InsertResult> done) = 0;
  // Inserts the first items that can be inserted now, and returns how many; the others are
  // unchanged, to be passed to insert(). 0 if this is not known at once.
  virtual std::size_t insert_at_once(std::string_view table, std::span<Item> items) {
    (void)table;
    (void)items;
    return 0;
  }
  // The same for many items without key, priority or version, in one pass. The caller keeps their
  // chunks and layouts until the call returns. For a table in this process that is not keyed
  // (TableOptions::is_keyed); 0 elsewhere.
  virtual std::size_t insert_views(std::string_view table, std::span<const TrajectoryView> items) {
    (void)table;
    (void)items;
    return 0;
  }
  virtual RequestId sample(SampleRequest request, Done<SampleResult> done) = 0;
  // The total weight of a table's items (Selector::mass) after its last change, to be read without
  // a lock; valid as long as the service. Null if there is no such table in this process.
  virtual const std::atomic<double>* mass(std::string_view table) {
    (void)table;
    return nullptr;
  }
  // Undoes draws that were not used, from a batch that is not brief and still has its
  // trajectories: each item regains its sample; if it was the item's last, the item is in its
  // table again, first in order. Returns how many items can be drawn again; none if the service
  // cannot undo a draw.
  virtual std::optional<std::size_t> hand_back(std::string_view table, SampleBatch& batch) {
    (void)table;
    (void)batch;
    return std::nullopt;
  }
  // --- State besides the items, for a durable service. Others ignore these calls.
  // The writers whose numbered items were in the store when it was reopened.
  virtual std::vector<SessionNumbers> known_sessions() { return {}; }
  // A writer will not send numbers below `below` again.
  virtual void settle(std::string_view session, std::uint64_t below) {
    (void)session;
    (void)below;
  }
  // Draws with SampleRequest::awaits_receipt have arrived at their reader, or were abandoned. After
  // a crash a durable service draws the others again. Only a table for which keeps_receipts() is
  // true needs this.
  virtual void receive(std::string_view table, std::span<const DrawId> draws) {
    (void)table;
    (void)draws;
  }
  virtual bool keeps_receipts(std::string_view table) {
    (void)table;
    return false;
  }
  // Its readers that draw ahead, for a store in this process; null elsewhere.
  virtual AheadReaders* ahead_readers() { return nullptr; }
  // Where the chunks of its items are best allocated; null if it does not matter. Lives as long as
  // the service.
  virtual ChunkMemory* chunk_memory() { return nullptr; }
  // Why mutate() would refuse the request before it changes anything, for a table in this process;
  // ok elsewhere, where only the answer tells.
  virtual Status check_mutation(const MutateRequest& request) {
    (void)request;
    return {};
  }
  // Priorities are checked against the table's selectors: either all are refused, or none.
  virtual RequestId mutate(const MutateRequest& request, Done<MutateResult> done) = 0;
  virtual RequestId lookup(const LookupRequest& request, Done<LookupResult> done) = 0;
  // Drops all items and counts of a table. Pending requests stay, and are checked again.
  virtual RequestId reset(std::string_view table, Done<Status> done) = 0;
  virtual RequestId info(Done<Result<std::vector<TableInfo>>> done) = 0;
  virtual RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) = 0;

  // A number that no other client of the store has: it makes clients with the same seed differ.
  // UNIMPLEMENTED if the store does not count clients.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): services keep it
  virtual RequestId new_client(Done<Result<std::uint64_t>> done) {
    done(unimplemented("this store does not number its clients"));
    return 0;
  }

  // The writer with that number inserts no more.
  virtual void end_writer(std::uint64_t writer) { (void)writer; }

  // For a thread that waits for `is_done`: lets it receive messages itself, for as long as that
  // pays, so that no other thread must be woken. Returns `is_done`; none at once if the service has
  // no such way. Requests of others may complete on the calling thread.
  virtual std::optional<bool> look(const std::function<bool()>& is_done) {
    (void)is_done;
    return std::nullopt;
  }

  // Why its server does not answer now; ok if it does, or if there is none. May wait for a moment.
  virtual Status why_unreachable() { return {}; }

  // Completes the request with CANCELLED and what was done so far, once that is as durable as the
  // service promises; no effect once it has completed.
  virtual void cancel(RequestId id) = 0;
  // Completes all pending and all later requests with CANCELLED.
  virtual void close() = 0;
};

// Where the chunks of a service's items are allocated.
inline Allocator& chunk_allocator(ReplayService& service) {
  ChunkMemory* const memory = service.chunk_memory();
  return memory != nullptr ? static_cast<Allocator&>(*memory) : BlockHeap::shared();
}

}  // namespace reverie
