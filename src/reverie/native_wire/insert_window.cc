#include "reverie/native_wire/insert_window.h"

#include <algorithm>

namespace reverie {
namespace {

// Roughly the bytes of an item, if none of its rows was sent before.
std::size_t payload_bytes(const Item& item) {
  std::size_t size = 0;
  for (const Piece& piece : item.trajectory.pieces()) {
    size += piece.length * piece.chunk->schema().step_bytes();
  }
  return size;
}

}  // namespace

InsertWindow::Request& InsertWindow::add(std::span<Item> items, TimePoint deadline, Done done,
                                         std::string_view table) {
  auto owned = std::make_unique<Request>();
  Request& request = *owned;
  request.first = end();
  request.count = items.size();
  request.deadline = deadline;
  request.done = std::move(done);
  request.table = table;
  for (Item& item : items) {
    if (is_keyed_) numbers_.emplace(item.key, end());
    Entry& entry = entries_.emplace_back();
    entry.size_bytes = payload_bytes(item);
    entry.item = std::move(item);
    entry.request = &request;
    waiting_bytes_ += entry.size_bytes;
  }
  at(request.first).owned = std::move(owned);
  open_count_ += items.size();
  waiting_count_ += items.size();
  return request;
}

InsertWindow::Request* InsertWindow::find(std::uint64_t first) {
  return first >= base_ && first < end() ? at(first).owned.get() : nullptr;
}

std::uint64_t InsertWindow::next() {
  while (!at(next_).request) ++next_;
  return next_;
}

InsertWindow::Batch InsertWindow::take(std::size_t items_max, std::size_t bytes_max) {
  Batch batch;
  std::size_t size_bytes = 0;
  for (; waiting_count_ > 0 && batch.items.size() < items_max && size_bytes < bytes_max; ++next_) {
    Entry& entry = at(next_);
    if (!entry.request) {
      if (batch.items.empty()) continue;
      break;
    }
    if (batch.items.empty()) batch.first = next_;
    batch.items.push_back({entry.item.key, entry.item.priority.value_or(1.0),
                           entry.item.trajectory.copy(), entry.request->table});
    size_bytes += entry.size_bytes;
    --waiting_count_;
    waiting_bytes_ -= entry.size_bytes;
  }
  return batch;
}

void InsertWindow::restart() {
  next_ = base_;
  waiting_count_ = open_count_;
  waiting_bytes_ = 0;
  for (const Entry& entry : entries_) {
    if (entry.request) waiting_bytes_ += entry.size_bytes;
  }
}

// The item was inserted or abandoned.
void InsertWindow::settle(std::uint64_t number, Outcome& outcome) {
  Entry& entry = at(number);
  entry.request = nullptr;
  --open_count_;
  if (number >= next_) {
    --waiting_count_;
    waiting_bytes_ -= entry.size_bytes;
  }
  if (is_keyed_) {
    const auto [begin, end] = numbers_.equal_range(entry.item.key);
    const auto found = std::find_if(begin, end, [&](const auto& n) { return n.second == number; });
    if (found != end) numbers_.erase(found);
  }
  outcome.freed.push_back(std::move(entry.item));
}

void InsertWindow::confirm(std::uint64_t first, std::uint64_t count, Outcome& outcome) {
  std::uint64_t number = std::max(first, base_);
  // Items that were not sent cannot be inserted, whatever a server claims.
  const std::uint64_t last = count > next_ ? next_ : std::min(first + count, next_);
  for (; number < last; ++number) {
    Request* const request = at(number).request;
    if (!request) continue;
    settle(number, outcome);
    if (++request->confirmed == request->count) complete(*request, {}, outcome);
  }
  pop_settled();
}

void InsertWindow::confirm_key(ItemKey key, Outcome& outcome) {
  if (!is_keyed_) {
    is_keyed_ = true;
    for (std::uint64_t number = base_; number < end(); ++number) {
      if (at(number).request) numbers_.emplace(at(number).item.key, number);
    }
  }
  const auto [begin, end] = numbers_.equal_range(key);
  const auto found = std::min_element(
      begin, end, [](const auto& a, const auto& b) { return a.second < b.second; });
  if (found != end) confirm(found->second, 1, outcome);
}

void InsertWindow::complete(Request& request, Status status, Outcome& outcome) {
  if (request.timer != 0) timers_.emplace_back(request.timer, request.deadline);
  outcome.ended.emplace_back(std::move(request.done),
                             InsertResult{std::move(status), request.confirmed});
  at(request.first).owned.reset();
}

void InsertWindow::give_up(Request& request, const Status& status, Outcome& outcome) {
  for (std::uint64_t n = request.first; n < request.first + request.count; ++n) {
    if (at(n).request) settle(n, outcome);
  }
  complete(request, status, outcome);
  pop_settled();
}

void InsertWindow::give_up_all(const Status& status, Outcome& outcome) {
  std::vector<Request*> requests;
  for (const Entry& entry : entries_) {
    if (entry.owned) requests.push_back(entry.owned.get());
  }
  for (Request* const request : requests) give_up(*request, status, outcome);
}

std::vector<InsertWindow::Request*> InsertWindow::open_requests(std::uint64_t first,
                                                                std::uint64_t count) {
  std::vector<Request*> requests;
  const std::uint64_t last = std::min(first + count, end());
  for (std::uint64_t number = std::max(first, base_); number < last; ++number) {
    Request* const request = at(number).request;
    if (!request || (!requests.empty() && requests.back() == request)) continue;
    requests.push_back(request);
  }
  return requests;
}

// An entry whose item is settled stays while the request that it owns has others that are not.
void InsertWindow::pop_settled() {
  while (!entries_.empty() && !entries_.front().request && !entries_.front().owned) {
    entries_.pop_front();
    ++base_;
  }
  next_ = std::max(next_, base_);
}

}  // namespace reverie
