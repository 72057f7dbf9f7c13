// What every service checks of a request before anything else, in the same words.
#pragma once

#include "reverie/base/status.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// INVALID_ARGUMENT when no item is asked for.
Status check_sample_request(const SampleRequest& request);

// INVALID_ARGUMENT unless each ticket and each key has a priority.
Status check_mutate_request(const MutateRequest& request);

}  // namespace reverie
