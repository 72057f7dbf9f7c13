#include "reverie/service/request_checks.h"

#include <cmath>

#include "reverie/base/format.h"
#include "reverie/record/trajectory.h"

namespace reverie {

Status check_item(const Item& item) {
  if (item.trajectory.empty()) {
    return invalid_argument("the item has no trajectory; give it at least one column");
  }
  if (item.priority && std::isnan(*item.priority)) {
    return invalid_argument("the priority of item {} is NaN; it must be a number", item.key);
  }
  return check_trajectory(item.trajectory.view());
}

Status check_each(std::span<const Item> items, const std::function<Status(const Item&)>& check) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    Status status = check(items[i]);
    if (status.ok()) continue;
    if (items.size() == 1) return status;
    return status.with_context(format("item {} of {}", i, items.size()));
  }
  return {};
}

Status check_sample_request(const SampleRequest& request) {
  if (request.count >= 1) return {};
  return invalid_argument("the number of samples is 0; ask for at least 1");
}

Status check_mutate_request(const MutateRequest& request) {
  if (request.tickets.size() != request.ticket_priorities.size()) {
    return invalid_argument("there are {} tickets but {} priorities; give one each",
                            request.tickets.size(), request.ticket_priorities.size());
  }
  if (request.keys.size() != request.key_priorities.size()) {
    return invalid_argument("there are {} keys but {} priorities; give one each",
                            request.keys.size(), request.key_priorities.size());
  }
  return {};
}

}  // namespace reverie
