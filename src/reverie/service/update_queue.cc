#include "reverie/service/update_queue.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "reverie/base/check.h"

namespace reverie {
namespace {

template <typename T>
void append(std::vector<T>& to, std::span<const T> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

UpdateCall::UpdateCall(const MutateRequest& request)
    : table_(request.table),
      tickets_(request.tickets.begin(), request.tickets.end()),
      ticket_priorities_(request.ticket_priorities.begin(), request.ticket_priorities.end()),
      keys_(request.keys.begin(), request.keys.end()),
      key_priorities_(request.key_priorities.begin(), request.key_priorities.end()),
      ends_(1, tickets_.empty() ? keys_.size() : tickets_.size()) {}

MutateRequest UpdateCall::request() const {
  MutateRequest request;
  request.table = table_;
  request.tickets = tickets_;
  request.ticket_priorities = ticket_priorities_;
  request.keys = keys_;
  request.key_priorities = key_priorities_;
  return request;
}

bool UpdateCall::add(const MutateRequest& request) {
  // A store takes tickets before keys, so a call with both would change the order.
  const bool is_mixed =
      (!tickets_.empty() || !request.tickets.empty()) && (!keys_.empty() || !request.keys.empty());
  const std::size_t count =
      tickets_.size() + keys_.size() + request.tickets.size() + request.keys.size();
  if (is_mixed || count > kPrioritiesMax || request.table != table_) return false;
  append(tickets_, request.tickets);
  append(ticket_priorities_, request.ticket_priorities);
  append(keys_, request.keys);
  append(key_priorities_, request.key_priorities);
  ends_.push_back(count);
  return true;
}

std::vector<UpdateCall> UpdateCall::split() const {
  if (ends_.size() == 1) return {*this};
  std::vector<UpdateCall> calls;
  calls.reserve(ends_.size());
  const MutateRequest whole = request();
  std::size_t begin = 0;
  for (const std::size_t end : ends_) {
    const auto part = [&](auto all) { return all.empty() ? all : all.subspan(begin, end - begin); };
    MutateRequest request;
    request.table = table_;
    request.tickets = part(whole.tickets);
    request.ticket_priorities = part(whole.ticket_priorities);
    request.keys = part(whole.keys);
    request.key_priorities = part(whole.key_priorities);
    calls.emplace_back(request);
    begin = end;
  }
  return calls;
}

void UpdateQueue::add(const MutateRequest& request) {
  ++update_count_;
  if (!waiting_.empty() && !waiting_.back().is_repeated && waiting_.back().call.add(request)) {
    return;
  }
  waiting_.push_back({UpdateCall(request)});
}

std::size_t UpdateQueue::calls_in_progress() const {
  return static_cast<std::size_t>(std::ranges::count(begun_, Begun::kInProgress, &Begun::state));
}

std::size_t UpdateQueue::first_ready() const {
  const auto ready = std::ranges::find_if(waiting_, [&](const Waiting& waiting) {
    return std::ranges::none_of(begun_, [&](const Begun& begun) {
      return begun.state == Begun::kRefused && begun.call->table() == waiting.call.table();
    });
  });
  return static_cast<std::size_t>(ready - waiting_.begin());
}

TimePoint UpdateQueue::due() const {
  const std::size_t ready = first_ready();
  if (ready == waiting_.size()) return TimePoint::max();
  const bool takes_more = ready + 1 == waiting_.size() && !waiting_[ready].is_repeated &&
                          !waiting_[ready].call.is_full();
  if (calls_in_progress() >= (takes_more ? 1 : kCallsMax)) return TimePoint::max();
  return takes_more ? next_at_ : TimePoint();
}

std::shared_ptr<const UpdateCall> UpdateQueue::next(TimePoint now, bool is_urgent) {
  const std::size_t ready = first_ready();
  if (ready == waiting_.size() || (!is_urgent && due() > now)) return nullptr;
  auto call = std::make_shared<const UpdateCall>(std::move(waiting_[ready].call));
  waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(ready));
  begun_.push_back({call});
  next_at_ = now + pace_;
  return call;
}

void UpdateQueue::end(const UpdateCall& call, const Status& status) {
  const auto begun =
      std::ranges::find_if(begun_, [&](const Begun& other) { return other.call.get() == &call; });
  REVERIE_CHECK(begun != begun_.end() && begun->state == Begun::kInProgress);
  if (status.code() == StatusCode::kInvalidArgument && call.update_count() > 1) {
    begun->state = Begun::kRefused;
  } else if (status.ok()) {
    begun->state = Begun::kDone;
  } else {
    // Not repeated: a fault is its own, and after a lost connection it may have taken effect.
    update_count_ -= call.update_count();
    if (!failure_) failure_ = {status, call.table()};
    begun_.erase(begun);
  }
  settle();
}

void UpdateQueue::settle() {
  std::set<std::string> behind;  // the tables of earlier calls that stay
  std::erase_if(begun_, [&](const Begun& begun) {
    if (begun.state == Begun::kDone && !behind.contains(begun.call->table())) {
      update_count_ -= begun.call->update_count();
      return true;
    }
    behind.insert(begun.call->table());
    return false;
  });
  for (const Begun& begun : begun_) {
    if (begun.state == Begun::kInProgress) behind.erase(begun.call->table());
  }
  for (const std::string& table : behind) repeat(table);
}

void UpdateQueue::repeat(const std::string& table) {
  std::deque<Waiting> repeated;
  std::erase_if(begun_, [&](const Begun& begun) {
    if (begun.call->table() != table) return false;
    if (begun.state == Begun::kRefused) {
      for (UpdateCall& part : begun.call->split()) {
        repeated.push_back({std::move(part), /*is_repeated=*/true});
      }
    } else {
      // Its priorities are newer than those that will be set again before it.
      repeated.push_back({*begun.call, /*is_repeated=*/true});
    }
    return true;
  });
  waiting_.insert(waiting_.begin(), std::make_move_iterator(repeated.begin()),
                  std::make_move_iterator(repeated.end()));
}

std::optional<UpdateQueue::Failure> UpdateQueue::take_failure() {
  return std::exchange(failure_, std::nullopt);
}

}  // namespace reverie
