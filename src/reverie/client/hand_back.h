// Returning items that were drawn ahead and will not be used.
//
// Where an item leaves its table with its last sample (a queue), a batch that is thrown away is
// lost. So it goes back: undrawn where the service can do that, else inserted anew, as the newest
// of the table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Hands batches back that were drawn in this order and still have their trajectories, from a table
// whose items leave after `max_times_sampled` samples (>= 1). Returns how many samples are lost
// nevertheless. Waits until `deadline` where it has to insert.
std::size_t hand_back(ReplayService& service, std::string_view table,
                      std::int64_t max_times_sampled, std::span<SampleBatch> batches,
                      TimePoint deadline);

// The same for the samples of one call that fails after it drew them, if items leave the table with
// their samples: the service is asked whether they do. Waits for at most two seconds, and warns in
// the log of samples that are lost.
void hand_back_of_failed_call(ReplayService& service, std::string_view table, SampleBatch batch);

// The same for a dataset, which knows. `remedy` names the option that says how much is drawn ahead.
void hand_back_or_warn(ReplayService& service, std::string_view table,
                       std::int64_t max_times_sampled, std::span<SampleBatch> batches,
                       std::string_view remedy);

}  // namespace reverie
