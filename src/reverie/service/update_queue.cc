#include "reverie/service/update_queue.h"

#include <utility>

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
  if (waiting_.empty()) return TimePoint::max();
  const bool takes_more =
      waiting_.size() == 1 && !waiting_.front().is_repeated && !waiting_.front().call.is_full();
  if (calls_in_progress_ >= (takes_more ? 1 : kCallsMax)) return TimePoint::max();
  return takes_more ? next_at_ : TimePoint();
}

std::shared_ptr<const UpdateCall> UpdateQueue::next(TimePoint now, bool is_urgent) {
  if (waiting_.empty() || (!is_urgent && due() > now)) return nullptr;
  auto call = std::make_shared<const UpdateCall>(std::move(waiting_.front().call));
  waiting_.pop_front();
  ++calls_in_progress_;
  next_at_ = now + pace_;
  return call;
}

void UpdateQueue::end(const UpdateCall& call, const Status& status) {
  --calls_in_progress_;
  if (status.code() == StatusCode::kInvalidArgument && call.update_count() > 1) {
    std::vector<UpdateCall> parts = call.split();
    for (auto part = parts.rbegin(); part != parts.rend(); ++part) {
      waiting_.push_front({std::move(*part), /*is_repeated=*/true});
    }
    return;
  }
  update_count_ -= call.update_count();
  if (!status.ok() && !failure_) failure_ = {status, call.table()};
}

std::optional<UpdateQueue::Failure> UpdateQueue::take_failure() {
  return std::exchange(failure_, std::nullopt);
}

}  // namespace reverie
