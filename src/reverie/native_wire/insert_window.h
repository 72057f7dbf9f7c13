// InsertWindow: a client's items by number, from their insert until they are settled.
//
//     base                 next               end
//      [ sent  -  sent  in ][ waits  -  waits ]         -: given up
//
// A number is never used twice, and an item keeps its number on every stream. Items are sent in the
// order of their numbers.
//
// Plain state: its owner locks, sends and reports results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/service/replay_service.h"

namespace reverie {

class InsertWindow {
 public:
  using Done = ReplayService::Done<InsertResult>;

  // What to do once no lock is held: results to report, items to free.
  struct Outcome {
    std::vector<std::pair<Done, InsertResult>> ended;
    std::vector<Item> freed;
  };
  // A request that is not complete. Its items are numbered from `first` on.
  struct Request {
    std::uint64_t first = 0;
    std::size_t count = 0;
    std::size_t confirmed = 0;
    TimePoint deadline = TimePoint::max();
    std::uint64_t timer = 0;
    Done done;
    std::string_view table = {};  // owned by the window's owner
  };
  // A copy of an item, for the thread that sends it.
  struct Outgoing {
    ItemKey key = 0;
    double priority = 0;
    Trajectory trajectory;
    std::string_view table = {};
  };
  // Items with the numbers first, first + 1, ...
  struct Batch {
    std::uint64_t first = 0;
    std::vector<Outgoing> items;
  };

  // Takes the items. Requires at least one. The request stays until it is complete; `table`
  // outlives the window.
  Request& add(std::span<Item> items, TimePoint deadline, Done done, std::string_view table = {});
  // The request whose first item has that number; null if there is none, or it is complete.
  Request* find(std::uint64_t first);

  // The number of the next item to send. Requires has_waiting().
  std::uint64_t next();
  // The next items to send, up to a gap, `items_max` items, or just beyond `bytes_max`.
  Batch take(std::size_t items_max, std::size_t bytes_max);
  // A new stream has begun: everything not settled must be sent again.
  void restart();

  void confirm(std::uint64_t first, std::uint64_t count, Outcome& outcome);
  // For servers that confirm by key. Confirms the first item with that key.
  void confirm_key(ItemKey key, Outcome& outcome);
  // Completes the request, and abandons its items that are not confirmed.
  void give_up(Request& request, const Status& status, Outcome& outcome);
  void give_up_all(const Status& status, Outcome& outcome);
  // The requests with unsettled items among the `count` numbers from `first` on.
  std::vector<Request*> open_requests(std::uint64_t first, std::uint64_t count);

  bool empty() const { return open_count_ == 0; }
  bool has_waiting() const { return waiting_count_ > 0; }
  std::size_t waiting_bytes() const { return waiting_bytes_; }
  // Whether any of the request was sent on this stream.
  bool is_sent(const Request& request) const { return request.first < next_; }
  // The client will not ask for numbers below it again.
  std::uint64_t base() const { return base_; }
  // Timers to cancel: those of requests that completed since the last call.
  std::vector<std::pair<std::uint64_t, TimePoint>> take_timers() {
    return std::exchange(timers_, {});
  }

 private:
  struct Entry {
    Item item;
    Request* request = nullptr;  // null once it is confirmed or given up
    std::size_t size_bytes = 0;
    std::unique_ptr<Request> owned;  // in the entry of the request's first item
  };

  std::uint64_t end() const { return base_ + entries_.size(); }
  Entry& at(std::uint64_t number) { return entries_[static_cast<std::size_t>(number - base_)]; }
  void settle(std::uint64_t number, Outcome& outcome);
  void complete(Request& request, Status status, Outcome& outcome);
  void pop_settled();

  std::deque<Entry> entries_;
  std::uint64_t base_ = 1;  // number of the first entry
  std::uint64_t next_ = 1;  // next to send
  std::size_t open_count_ = 0;
  std::size_t waiting_count_ = 0;  // from next_ on, not settled
  std::size_t waiting_bytes_ = 0;
  std::vector<std::pair<std::uint64_t, TimePoint>> timers_;
  // Unsettled items by key; maintained from the first confirm_key() on.
  bool is_keyed_ = false;
  std::unordered_multimap<ItemKey, std::uint64_t> numbers_;
};

}  // namespace reverie
