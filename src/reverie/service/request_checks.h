// The checks that every service makes on a request before anything else, with the same messages.
#pragma once

#include <functional>
#include <span>

#include "reverie/base/status.h"
#include "reverie/record/item.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// INVALID_ARGUMENT unless the item has a valid trajectory, and no priority that is NaN.
Status check_item(const Item& item);

// The first error that `check` returns for an item; for one of several items, with its place.
Status check_each(std::span<const Item> items, const std::function<Status(const Item&)>& check);

// INVALID_ARGUMENT if no item is requested.
Status check_sample_request(const SampleRequest& request);

// INVALID_ARGUMENT unless each ticket and each key has a priority.
Status check_mutate_request(const MutateRequest& request);

}  // namespace reverie
