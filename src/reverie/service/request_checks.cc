#include "reverie/service/request_checks.h"

namespace reverie {

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
