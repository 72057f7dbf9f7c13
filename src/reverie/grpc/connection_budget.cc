#include "reverie/grpc/connection_budget.h"

namespace reverie {

Status ConnectionBudget::check_in(std::size_t bytes, std::size_t excepted) const {
  const std::size_t held = in_bytes();
  const std::size_t others = held - std::min(held, excepted);
  // Twice the bound: messages that were permitted before it was reached may still arrive.
  if (others > 0 && others + bytes > 2 * bytes_max_) {
    return resource_exhausted(
        "the connection's messages in transfer hold {} bytes and {} more would pass twice the {} "
        "allowed; send fewer at once, or raise connection_bytes",
        others, bytes, bytes_max_);
  }
  return check_in_all(bytes);
}

Status ConnectionBudget::check_in_all(std::size_t bytes) const {
  const std::size_t held = in_bytes();
  if (of_all_ && held + bytes > kOwnBytes && of_all_->is_full() &&
      of_all_->held_bytes() > bytes_over_own(held)) {
    return of_all_->refusal(bytes);
  }
  return {};
}

void ConnectionBudget::await_room(bool is_to_send, bool is_to_draw) {
  is_awaited_.store(true);
  if ((is_to_send && may_send()) || (is_to_draw && may_draw())) {
    notify_room();
    return;
  }
  if (!of_all_ || !of_all_->is_full() || is_awaiting_all_.exchange(true)) return;
  of_all_->await_room([weak = weak_from_this()] {
    const auto self = weak.lock();
    if (!self) return;
    self->is_awaiting_all_.store(false);
    self->notify_room();
  });
}

}  // namespace reverie
