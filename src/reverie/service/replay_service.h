// ReplayService: the door to a store.
//
// All inserts, samples and updates go through this interface; what lies behind is the store in this
// process, a server behind a socket, or a simulation of either. It is asynchronous, so that an
// event loop can stand on it, and it answers inline: a request that can be served now completes on
// the caller's thread before the call returns, without a wake-up.
//
//     service.sample(request, [](SampleResult result) { ... });
//
// Promises of every implementation (tests/conformance/replay_service_suite.h holds them to it):
// - Each request completes exactly once, and no completion runs under a lock of the service.
// - A request's arguments are checked whole before anything is applied. Admission then goes
//   item by item, as one-by-one calls would. At the deadline or a cancel, the result says what
//   was applied; samples already drawn are in it, never lost.
// - Requests of one kind on one table are served in the order of their arrival, except that a
//   sample which lacks distinct items lets others pass; inserts and samples alternate, so neither
//   starves the other.
// - A deadline ends a request that a bound of its table holds back, never one that could be served
//   and only waits for its turn: a deadline that has passed means what can be done at once.
// - Spans in a request are read before the call returns.
//
// How gRPC, shared memory, journal, checkpoint and simulation use it:
// docs/decisions/0001-the-door.md.
#pragma once

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
#include "reverie/service/sample_batch.h"
#include "reverie/tensor/block_heap.h"
#include "reverie/tensor/chunk_memory.h"

namespace reverie {

// Names a request for cancel(). 0: it completed before its call returned.
using RequestId = std::uint64_t;

// Which items of a writer these are, of one that numbers what it sends so that it may send it
// again.
struct ItemNumbers {
  std::string_view session = {};  // empty: no numbers
  std::uint64_t first = 0;        // of the first item; the others follow
};

// What a writer had inserted, as far as it may send it again.
struct SessionNumbers {
  std::string session;
  NumberSet in;
};

struct InsertRequest {
  std::string_view table = {};
  std::span<Item> items = {};  // moved from, unless the request is refused as a whole
  TimePoint deadline = TimePoint::max();
  // Whose items these are: a number of a writer that puts rows of its chunks into several tables. A
  // service far away then sends all that is of this writer on one way, each chunk once, in order
  // for each table; its earlier items must be in. 0: no writer in particular.
  std::uint64_t writer = 0;
  // Kept with the items by a service that outlives a crash; see known_sessions().
  ItemNumbers numbers = {};
  // Whether the calling thread does nothing else until the result is there.
  bool is_waited_for = false;
};

struct InsertResult {
  Status status;
  // The first `applied` items are in; those whose key existed were updated.
  std::size_t applied = 0;
};

struct SampleRequest {
  std::string_view table = {};
  std::size_t count = 1;
  // Completes as soon as this many are drawn and no more can be at once; `count` waits for all.
  std::size_t min_count = 1;
  // No item twice within the request. Requires min_count <= what the table can ever hold.
  bool distinct = false;
  // Whether a brief batch will do (sample_batch.h). A service may give more.
  bool brief = false;
  // Whether the batch is to say how unlikely the least likely item of the table was, where the
  // service and the table's sampler can tell: SampleBatch::least_probability().
  bool wants_least = false;
  // Whether receive() will say that the draws have arrived at their reader. See there.
  bool awaits_receipt = false;
  TimePoint deadline = TimePoint::max();
  // A sample request that waits, of the same reader on the same table, and that this one is to
  // follow: a service far away then begins with this one as soon as that one is served, and may
  // cancel both with either. 0: none.
  RequestId follows = 0;
  // Filled and handed back in the result; a batch of an earlier call may be given again. A new
  // one is made when empty.
  SampleBatch batch = {};
};

// One draw of an item: the ticket of the item, and which of its draws it is.
struct DrawId {
  std::uint64_t ticket = 0;  // packed
  std::int32_t times_sampled = 0;
};

struct SampleResult {
  Status status;  // of the draws that are missing; ok when there are at least min_count
  SampleBatch batch;
};

// A draw that its reader could not decode.
struct CorruptItem {
  ItemKey key = 0;
  ChunkKey chunk = 0;  // that is damaged; 0 where the reader was not told its key
  std::string why;
};

// Corrupt items, deletions, priorities by ticket and by key: applied in this order, atomically in
// blocks of some thousands.
struct MutateRequest {
  std::string_view table = {};
  std::span<const ItemKey> deletes = {};
  std::span<const std::uint64_t> tickets = {};  // packed
  std::span<const double> ticket_priorities = {};
  std::span<const ItemKey> keys = {};
  std::span<const double> key_priorities = {};
  // They leave their table, and are counted and logged; their draws did not happen.
  std::span<const CorruptItem> corrupt = {};
  // As for an insert.
  bool is_waited_for = false;
};

struct MutateResult {
  Status status;
  std::size_t updated = 0;
  std::size_t deleted = 0;
  std::size_t missing = 0;  // keys that are gone and tickets that are stale: ignored, and counted
};

struct LookupRequest {
  std::string_view table = {};
  std::span<const ItemKey> keys = {};
};

struct LookupResult {
  Status status;
  std::vector<double> priorities;      // one for each key; NaN where there is no such item
  std::vector<std::uint64_t> tickets;  // packed; 0 where there is no such item
};

// Thread-safe. Outlives its requests: destroying a service completes what is pending with
// CANCELLED.
class ReplayService {
 public:
  template <typename T>
  using Done = std::function<void(T)>;

  virtual ~ReplayService() = default;

  virtual RequestId insert(InsertRequest request, Done<InsertResult> done) = 0;
  // Inserts those first items that can be in now, and returns how many; the others are left as they
  // are, for insert() to take or refuse. 0 where that is not known at once.
  virtual std::size_t insert_at_once(std::string_view table, std::span<Item> items) {
    (void)table;
    (void)items;
    return 0;
  }
  // The same for many items that have no key, priority or version of their own, in one pass. The
  // caller keeps their chunks and layouts until the call returns. For a table of this process that
  // is not keyed (TableOptions::is_keyed); 0 elsewhere.
  virtual std::size_t insert_views(std::string_view table, std::span<const TrajectoryView> items) {
    (void)table;
    (void)items;
    return 0;
  }
  virtual RequestId sample(SampleRequest request, Done<SampleResult> done) = 0;
  // Undoes draws that were not used, of a batch that is not brief and still has its trajectories:
  // each item gets its sample back, and is in its table again, first in its order, if this one was
  // its last. Returns how many items were still to be had or are again; none where the service
  // cannot undo a draw.
  virtual std::optional<std::size_t> hand_back(std::string_view table, SampleBatch& batch) {
    (void)table;
    (void)batch;
    return std::nullopt;
  }
  // --- What is beside the items, for a service that outlives a crash. Others ignore it.
  // The writers whose numbered items were in when the store was opened again.
  virtual std::vector<SessionNumbers> known_sessions() { return {}; }
  // A writer sends no number below `below` again.
  virtual void settle(std::string_view session, std::uint64_t below) {
    (void)session;
    (void)below;
  }
  // Draws that SampleRequest::awaits_receipt is true of have arrived at their reader, or are given
  // up. A service that outlives a crash draws the others again after it. Only a table for which
  // keeps_receipts() is true needs this.
  virtual void receive(std::string_view table, std::span<const DrawId> draws) {
    (void)table;
    (void)draws;
  }
  virtual bool keeps_receipts(std::string_view table) {
    (void)table;
    return false;
  }
  // Where the chunks of its items are best allocated; null where it does not matter. As long as the
  // service.
  virtual ChunkMemory* chunk_memory() { return nullptr; }
  // A priority is checked against the table's selectors: all are refused, or none.
  virtual RequestId mutate(const MutateRequest& request, Done<MutateResult> done) = 0;
  virtual RequestId lookup(const LookupRequest& request, Done<LookupResult> done) = 0;
  // Drops all items and counts of a table. Pending requests stay, and are looked at afresh.
  virtual RequestId reset(std::string_view table, Done<Status> done) = 0;
  virtual RequestId info(Done<Result<std::vector<TableInfo>>> done) = 0;
  virtual RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) = 0;

  // A number that no other client of the store has got: what clients of one seed differ by.
  // UNIMPLEMENTED where the store counts no clients.
  // NOLINTNEXTLINE(performance-unnecessary-value-param): services keep it
  virtual RequestId new_client(Done<Result<std::uint64_t>> done) {
    done(unimplemented("this store does not number its clients"));
    return 0;
  }

  // The writer of that number inserts no more.
  virtual void end_writer(std::uint64_t writer) { (void)writer; }

  // For a thread that waits for `is_done`: lets it receive what the service was sent, where no
  // other thread has to be woken then, for as long as that pays. Gives `is_done`; nothing at once
  // for a service that has no such way. Requests of others may complete on the calling thread.
  virtual std::optional<bool> look(const std::function<bool()>& is_done) {
    (void)is_done;
    return std::nullopt;
  }

  // Completes the request with CANCELLED and what was done so far; no effect once it completed.
  virtual void cancel(RequestId id) = 0;
  // Completes all that is pending, and all that comes, with CANCELLED.
  virtual void close() = 0;
};

// Where the chunks of a service's items are allocated.
inline Allocator& chunk_allocator(ReplayService& service) {
  ChunkMemory* const memory = service.chunk_memory();
  return memory != nullptr ? static_cast<Allocator&>(*memory) : BlockHeap::shared();
}

}  // namespace reverie
