#include "reverie/service/update_queue.h"

#include <algorithm>
#include <set>
#include <string_view>
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

TimePoint UpdateQueue::due() const {
  if (waiting_.empty() || has_refused()) return TimePoint::max();
  const bool takes_more =
      waiting_.size() == 1 && !waiting_.front().is_repeated && !waiting_.front().call.is_full();
  if (calls_in_progress_ >= (takes_more ? 1 : kCallsMax)) return TimePoint::max();
  return takes_more ? next_at_ : TimePoint();
}

std::shared_ptr<const UpdateCall> UpdateQueue::next(TimePoint now, bool is_urgent) {
  if (waiting_.empty() || has_refused() || (!is_urgent && due() > now)) return nullptr;
  auto call = std::make_shared<const UpdateCall>(std::move(waiting_.front().call));
  waiting_.pop_front();
  begun_.push_back({call});
  ++calls_in_progress_;
  next_at_ = now + pace_;
  return call;
}

void UpdateQueue::end(const UpdateCall& call, const Status& status) {
  const auto begun =
      std::ranges::find_if(begun_, [&](const Begun& other) { return other.call.get() == &call; });
  REVERIE_CHECK(begun != begun_.end() && begun->state == Begun::kInProgress);
  --calls_in_progress_;
  if (status.code() == StatusCode::kInvalidArgument && call.update_count() > 1) {
    begun->state = Begun::kRefused;
  } else if (status.ok()) {
    begun->state = Begun::kDone;
  } else {
    update_count_ -= call.update_count();
    if (!failure_) failure_ = {status, call.table()};
    begun_.erase(begun);  // nothing of it has taken effect, and it is not repeated
  }
  settle();
}

bool UpdateQueue::has_refused() const {
  return std::ranges::find(begun_, Begun::kRefused, &Begun::state) != begun_.end();
}

void UpdateQueue::settle() {
  while (!begun_.empty() && begun_.front().state == Begun::kDone) {
    update_count_ -= begun_.front().call->update_count();
    begun_.pop_front();
  }
  if (calls_in_progress_ == 0 && !begun_.empty()) repeat();
}

void UpdateQueue::repeat() {
  std::deque<Waiting> repeated;
  std::set<std::string_view> tables;  // of refused calls
  for (const Begun& begun : begun_) {
    if (begun.state == Begun::kRefused) {
      tables.insert(begun.call->table());
      for (UpdateCall& part : begun.call->split()) {
        repeated.push_back({std::move(part), /*is_repeated=*/true});
      }
    } else if (tables.contains(begun.call->table())) {
      // Its priorities are newer than those that will be set again before it.
      repeated.push_back({*begun.call, /*is_repeated=*/true});
    } else {
      update_count_ -= begun.call->update_count();
    }
  }
  begun_.clear();
  waiting_.insert(waiting_.begin(), std::make_move_iterator(repeated.begin()),
                  std::make_move_iterator(repeated.end()));
}

std::optional<UpdateQueue::Failure> UpdateQueue::take_failure() {
  return std::exchange(failure_, std::nullopt);
}

}  // namespace reverie
