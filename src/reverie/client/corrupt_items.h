// Items that cannot be decoded, found when their batch is assembled.
//
//     drawn  a b c d --assemble--> DATA_LOSS --find--> c --mutate--> out of its table, counted
//            a b d + e  <--sample-- another draw in its place
//
// A chunk's lengths and headers are checked when it arrives, its bytes only when they are read, as
// are files beside the store, where rows may be missing. So
// that one bad chunk does not stop a learner, the reader that finds it removes the items over it,
// one by one, and goes on.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "reverie/client/batch.h"
#include "reverie/record/trajectory.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

enum class OnCorrupt {
  kRemove,  // take the item out, and draw another
  kRaise,   // the call fails with DATA_LOSS, and the item stays
};

// What is wrong with the bytes of an item: the chunk's key, 0 where the reader was not told it, and
// why. None if all of it can be decoded, its external rows from `files`.
struct Damage {
  ChunkKey chunk = 0;
  Status why;
};
std::optional<Damage> find_damage(const TrajectoryView& item, ExternalFiles* files);

// Takes the items that cannot be decoded out of `batch` and of their table, which undoes their
// draws. Requires that the batch is pinned and not brief. Returns how many; `why`, the error
// that assembling them gave, where no item is at fault, and the service's own where it refuses.
Result<std::size_t> take_out_corrupt(ReplayService& service, std::string_view table,
                                     const Status& why, const WaitOptions& wait, SampleBatch& batch,
                                     ExternalFiles* files = nullptr);

// The same, and draws others in their place: a request like `like`, whose batch is not looked at.
// Where no more come in time, `result` says so as a sample request does. A distinct batch is
// drawn anew as a whole, so that its probabilities are those of one draw.
Status replace_corrupt(ReplayService& service, const SampleRequest& like, const Status& why,
                       const WaitOptions& wait, SampleResult& result,
                       ExternalFiles* files = nullptr);

// Assembles the samples of `result`, which a request like `like` gave, without those that cannot be
// decoded. Nothing is assembled where no samples are left.
Status assemble_decodable(ReplayService& service, const SampleRequest& like, OnCorrupt on_corrupt,
                          const WaitOptions& wait, const BatchOptions& options,
                          SampleResult& result, Batch& batch);

}  // namespace reverie
