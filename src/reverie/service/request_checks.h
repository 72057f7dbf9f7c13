// The checks that every service makes on a request before anything else, with the same messages.
#pragma once

#include "reverie/base/status.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// INVALID_ARGUMENT if no item is requested.
Status check_sample_request(const SampleRequest& request);

// INVALID_ARGUMENT unless each ticket and each key has a priority.
Status check_mutate_request(const MutateRequest& request);

}  // namespace reverie
