// Items that cannot be decoded, found when their batch is assembled.
//
//     drawn  a b c d --assemble--> DATA_LOSS --find--> c --mutate--> out of its table, counted
//            a b d + e  <--sample-- another draw in its place
//
// A chunk's lengths and headers are checked when it arrives, but its bytes only when they are
// read; so are external files, which may lack rows. So that one bad chunk does not stop a
// learner, the reader that finds it removes the items that refer to it, one by one, and
// continues.
#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "reverie/gather/batch.h"
#include "reverie/record/trajectory.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

enum class OnCorrupt {
  kRemove,  // remove the item, and draw another
  kRaise,   // the call fails with DATA_LOSS, and the item stays
};

// What is wrong with an item: the damaged chunk's key, 0 if the reader does not know it, and the
// error. None if everything can be decoded, with external rows from `files`.
struct Damage {
  ChunkKey chunk = 0;
  Status why;
};
std::optional<Damage> find_damage(const TrajectoryView& item, ExternalFiles* files);

// Removes the items that cannot be decoded from `batch` and from their table, which undoes their
// draws. Requires that the batch is pinned and not brief. Returns how many; `why`, the error of
// assembling, if no item is at fault; the service's error if it refuses.
Result<std::size_t> take_out_corrupt(ReplayService& service, std::string_view table,
                                     const Status& why, const WaitOptions& wait, SampleBatch& batch,
                                     ExternalFiles* files = nullptr);

// The same, and draws replacements with a request like `like`, whose batch is ignored. If these do
// not come in time, `result` reports it like a sample request. A distinct batch is drawn again as a
// whole, so that its probabilities are those of one draw.
Status replace_corrupt(ReplayService& service, const SampleRequest& like, const Status& why,
                       const WaitOptions& wait, SampleResult& result,
                       ExternalFiles* files = nullptr);

// Assembles the samples of `result`, from a request like `like`, without those that cannot be
// decoded. Assembles nothing if no samples are left.
Status assemble_decodable(ReplayService& service, const SampleRequest& like, OnCorrupt on_corrupt,
                          const WaitOptions& wait, const BatchOptions& options,
                          SampleResult& result, Batch& batch);

}  // namespace reverie
