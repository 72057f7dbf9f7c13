// Counts what the process keeps in memory for one connection, in either direction.
//
//     in    messages on their way in, their decoded sizes, metadata, calls that are open
//     out   messages that wait to be sent, and what was drawn for them
//
// Each direction may always use half of the bound, and more while the other leaves it. What exceeds
// the first half megabyte of a direction counts towards the server's bound too. A message or batch
// larger than all this is accepted when its direction holds nothing else.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>

#include "reverie/base/status.h"
#include "reverie/door/byte_budget.h"

namespace reverie {

// Thread-safe.
class ConnectionBudget : public std::enable_shared_from_this<ConnectionBudget> {
 public:
  // Granted to each direction, whatever the server's other connections hold.
  static constexpr std::size_t kOwnBytes = std::size_t{512} << 10;

  // Null `of_all`: only the connection's own bound.
  explicit ConnectionBudget(std::size_t bytes_max, std::shared_ptr<ByteBudget> of_all = nullptr)
      : bytes_max_(bytes_max), of_all_(std::move(of_all)) {}
  // Gives back to the server what is still held.
  ~ConnectionBudget() {
    if (!of_all_) return;
    of_all_->give_back(bytes_over_own(in_.bytes.load()) + bytes_over_own(out_.bytes.load()));
  }
  ConnectionBudget(const ConnectionBudget&) = delete;
  ConnectionBudget& operator=(const ConnectionBudget&) = delete;

  std::size_t bytes_max() const { return bytes_max_; }

  // --- In.
  void add_in(std::size_t bytes) { add(in_, bytes); }
  void give_back_in(std::size_t bytes) { give_back(in_, bytes); }
  std::size_t in_bytes() const { return in_.bytes.load(std::memory_order_relaxed); }
  // Whether no more should be requested from the peer.
  bool is_in_full() const { return is_full(in_, out_); }
  // RESOURCE_EXHAUSTED if `bytes` more, with what is held except `excepted`, exceed the bound:
  // the peer sends although it was not asked to. check_in_all() checks the server's bound
  // only.
  Status check_in(std::size_t bytes, std::size_t excepted = 0) const;
  Status check_in_all(std::size_t bytes) const;

  // --- Out. Drawn samples are counted apart from what waits to be sent.
  void add_queued(std::size_t bytes) {
    queued_bytes_.fetch_add(bytes, std::memory_order_relaxed);
    add(out_, bytes);
  }
  void give_back_queued(std::size_t bytes) {
    if (bytes == 0) return;
    queued_bytes_.fetch_sub(bytes);
    give_back(out_, bytes);
  }
  void add_drawn(std::size_t bytes) { add(out_, bytes); }
  void give_back_drawn(std::size_t bytes) { give_back(out_, bytes); }
  // Reserves room for up to `count` samples to be drawn, and returns for how many: at least one.
  // Beyond one per call, drawn samples take at most an eighth of the bound.
  std::size_t reserve_drawn(std::size_t count, std::size_t bytes_each) {
    const std::size_t drawn = out_bytes() - std::min(out_bytes(), queued_bytes_.load());
    const std::size_t left = bytes_max_ / 8 - std::min(bytes_max_ / 8, drawn);
    count = std::clamp<std::size_t>(left / bytes_each, 1, std::max<std::size_t>(count, 1));
    add_drawn(count * bytes_each);
    return count;
  }
  std::size_t out_bytes() const { return out_.bytes.load(std::memory_order_relaxed); }
  // Whether a message may be made of drawn samples.
  bool may_send() const { return queued_bytes_.load() == 0 || !is_full(out_, in_); }
  // Whether more may be drawn.
  bool may_draw() const { return out_bytes() == 0 || !is_full(out_, in_); }

  // await_room() calls it. Set it before anything is written.
  void set_on_room(std::function<void()> on_room) { on_room_ = std::move(on_room); }
  // Has `on_room` called once when there may be room again to send or to draw, on any thread;
  // immediately if there is such room now.
  void await_room(bool is_to_send, bool is_to_draw);

 private:
  struct Direction {
    std::atomic<std::size_t> bytes{0};
  };
  static std::size_t bytes_over_own(std::size_t bytes) {
    return bytes - std::min(bytes, kOwnBytes);
  }
  // Each change is exact, so that the server's count is the sum over its connections.
  void add(Direction& direction, std::size_t bytes) {
    const std::size_t before = direction.bytes.fetch_add(bytes);
    if (of_all_) of_all_->add(bytes_over_own(before + bytes) - bytes_over_own(before));
  }
  void give_back(Direction& direction, std::size_t bytes) {
    if (bytes == 0) return;
    const std::size_t before = direction.bytes.fetch_sub(bytes);
    if (of_all_) of_all_->give_back(bytes_over_own(before) - bytes_over_own(before - bytes));
    if (is_awaited_.load() && (may_send() || may_draw())) notify_room();
  }
  bool is_full(const Direction& direction, const Direction& other) const {
    const std::size_t bytes = direction.bytes.load();
    const std::size_t left = bytes_max_ - std::min(bytes_max_, other.bytes.load());
    if (bytes >= std::max(bytes_max_ / 2, left)) return true;
    return of_all_ && bytes >= kOwnBytes && of_all_->is_full();
  }
  void notify_room() {
    if (is_awaited_.exchange(false)) on_room_();
  }

  const std::size_t bytes_max_;
  const std::shared_ptr<ByteBudget> of_all_;
  Direction in_;
  Direction out_;
  std::atomic<std::size_t> queued_bytes_{0};  // of out_
  std::atomic<bool> is_awaited_{false};
  std::atomic<bool> is_awaiting_all_{false};
  std::function<void()> on_room_;
};

}  // namespace reverie
