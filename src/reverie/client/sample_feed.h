// SampleFeed: items for a reader that takes them one by one, drawn and gathered many at a time.
//
//     draws          1, 2, 4, ... items a request, while they come without a wait
//     items          a a a b b a         neighbours that are alike
//     groups        [  3  ][ 2 ][1]      are arrays [k, T, ...] together
//
// So the cost of making arrays is shared by many items, and a reader still gets an item as soon as
// it could be drawn. Consecutive items may differ in length or columns.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/gather/batch.h"
#include "reverie/gather/corrupt_items.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/tensor/batch_memory.h"

namespace reverie {

// Neighbouring similar items of a batch, as arrays.
struct SampleGroup {
  std::size_t begin = 0;  // index in the batch
  std::size_t count = 0;
  Batch batch;
  std::vector<bool> squeezed;  // of each column
};

// The items of a batch, in order, in as few groups as possible. Requires a pinned batch.
Result<std::vector<SampleGroup>> assemble_groups(const SampleBatch& samples, Allocator& allocator,
                                                 ExternalFiles* files = nullptr);

struct SampleFeedOptions {
  std::string table;
  std::size_t request_max = 1;           // items per request, at least 1
  std::optional<Duration> timeout = {};  // to wait for an item; none: no limit
  // Whether the service returns what there is if min_count is 1, as one in this process does.
  bool is_local = false;
  // Whether the samples keep their trajectories, so that they can be handed back (hand_back.h).
  bool keeps_trajectories = false;
  // As SampleRequest::awaits_receipt.
  bool awaits_receipt = false;
  // Whether a call continues the wait, and the timeout, of one before it that was interrupted.
  bool continues_waits = false;
  // Since when a reader has waited, if one does: a timeout that begins with a call began then.
  std::function<std::optional<TimePoint>()> wanted_since = nullptr;
  Clock* clock = nullptr;  // of the service's deadlines; null: the system's
  // A bound on the bytes of a request's rows, estimated from the request before; 0: no bound.
  std::size_t bytes_max = 0;
  OnCorrupt on_corrupt = OnCorrupt::kRemove;
  std::shared_ptr<ExternalFiles> files = nullptr;  // as BatchOptions::files
};

// The result of one draw. The samples hold no pin.
struct FedSamples {
  SampleBatch samples;
  std::vector<SampleGroup> groups;
};

// Used by one thread; several feeds may share a budget.
class SampleFeed {
 public:
  // The number of items that all feeds together may still draw.
  using Budget = std::atomic<std::int64_t>;

  // Without a budget there is no bound.
  SampleFeed(std::shared_ptr<ReplayService> service, SampleFeedOptions options,
             std::shared_ptr<Budget> budget)
      : service_(std::move(service)),
        options_(std::move(options)),
        budget_(std::move(budget)),
        memory_(BatchMemory::make(kBuffersKept)) {}

  // The next items, at least one. OUT_OF_RANGE once the budget is used up, DEADLINE_EXCEEDED if no
  // item came in time. Items that were drawn but could not be gathered count as not drawn; they are
  // handed back if samples remove them, unless one of them is corrupt.
  Result<FedSamples> operator()(const WaitOptions& wait);

  // Takes effect with the next request, which asks for several at once. Requires count >= 1.
  void set_request_max(std::size_t count);

 private:
  static constexpr std::size_t kBuffersKept = 16;

  std::size_t take_budget(std::size_t count);
  void give_back(std::size_t count);
  void bound_bytes(const FedSamples& fed);
  // The groups of a batch; items that cannot be decoded are removed from the batch and its table.
  // Empty if nothing is left.
  Result<std::vector<SampleGroup>> groups_of(SampleBatch& batch, const WaitOptions& wait);

  std::shared_ptr<ReplayService> service_;
  SampleFeedOptions options_;
  std::shared_ptr<Budget> budget_;
  std::shared_ptr<BatchMemory> memory_;     // for the arrays
  std::size_t wanted_ = 1;                  // items of the next request
  std::optional<TimePoint> waiting_since_;  // of a wait that is to be continued
};

}  // namespace reverie
