// Returning items that were drawn ahead and will not be used.
//
// If an item leaves its table with its last sample (a queue), dropping a batch loses its items. So
// they go back: the draws are undone if the service can do that, else the items are inserted again,
// as the newest of the table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "reverie/base/clock.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Hands back batches, given in the order of their draws and with their trajectories, to a table
// whose items leave after `max_times_sampled` samples (>= 1). Returns how many samples are lost
// nevertheless. Waits until `deadline` if it has to insert.
std::size_t hand_back(ReplayService& service, std::string_view table,
                      std::int64_t max_times_sampled, std::span<SampleBatch> batches,
                      TimePoint deadline);

// The same for the samples of one call that fails after it drew them, if samples remove items,
// which it asks the service. Waits for at most two seconds, and logs a warning if samples are
// lost.
void hand_back_of_failed_call(ReplayService& service, std::string_view table, SampleBatch batch);

// The same for a dataset, which knows. `remedy` names the option that limits drawing ahead.
void hand_back_or_warn(ReplayService& service, std::string_view table,
                       std::int64_t max_times_sampled, std::span<SampleBatch> batches,
                       std::string_view remedy);

}  // namespace reverie
