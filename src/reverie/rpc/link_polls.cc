// Tested in peer_test.cc.
#include "reverie/rpc/link_polls.h"

#include <algorithm>
#include <utility>

#include "reverie/base/spin.h"
#include "reverie/rpc/wire_link.h"

namespace reverie {
namespace {

// Bounds how long a thread that waits for something else reads for others.
constexpr Duration kPollMax = std::chrono::milliseconds(10);

}  // namespace

void LinkPolls::watch(const std::shared_ptr<WireLink>& link) {
  std::shared_ptr<WireLink> oldest;
  {
    MutexLock lock(mutex_);
    if (link->is_over() || link->is_watched.load()) return;
    if (watched_.size() >= kWatchedMax) {
      oldest = std::move(watched_.front());
      watched_.erase(watched_.begin());
      oldest->is_watched.store(false);
    }
    link->is_watched.store(true);
    watched_.push_back(link);
    watched_count_.store(watched_.size(), std::memory_order_relaxed);
  }
  while (oldest && !oldest->arm()) oldest->poll();
}

void LinkPolls::unwatch(const WireLink* link) {
  std::shared_ptr<WireLink> gone;  // is released under no lock
  MutexLock lock(mutex_);
  const auto place = std::find_if(watched_.begin(), watched_.end(),
                                  [link](const auto& other) { return other.get() == link; });
  if (place == watched_.end()) return;
  gone = std::move(*place);
  watched_.erase(place);
  gone->is_watched.store(false);
  watched_count_.store(watched_.size(), std::memory_order_relaxed);
}

void LinkPolls::clear() {
  std::vector<std::shared_ptr<WireLink>> gone;
  MutexLock lock(mutex_);
  gone.swap(watched_);
  watched_count_.store(0, std::memory_order_relaxed);
}

void LinkPolls::enter() {
  if (count_.fetch_add(1) > 0 || watched_count_.load(std::memory_order_relaxed) == 0) return;
  MutexLock lock(mutex_);
  for (const auto& link : watched_) link->disarm();
}

void LinkPolls::exit() {
  if (count_.fetch_sub(1) > 1) return;
  while (count_.load() == 0) {
    bool is_quiet = true;
    if (watched_count_.load(std::memory_order_relaxed) > 0) {
      MutexLock lock(mutex_);
      for (const auto& link : watched_) is_quiet = link->arm() && is_quiet;
    }
    if (is_quiet) return;
    (void)poll();
  }
}

bool LinkPolls::poll(bool reads_sockets) {
  if (watched_count_.load(std::memory_order_relaxed) == 0) return false;
  std::shared_ptr<WireLink> busy;
  std::shared_ptr<WireLink> socket;
  {
    MutexLock lock(mutex_);
    for (const auto& link : watched_) {
      if (!link->has_work()) continue;
      busy = link;
      break;
    }
    // The next poll begins with another socket.
    if (busy && watched_.size() > 1) {
      const auto place = std::find(watched_.begin(), watched_.end(), busy);
      std::rotate(place, place + 1, watched_.end());
    }
    for (std::size_t i = 0; i < watched_.size() && !busy && !socket && reads_sockets; ++i) {
      const auto& link = watched_[++socket_turn_ % watched_.size()];
      if (link->is_socket_polled()) socket = link;
    }
  }
  return busy ? busy->poll() : socket && socket->poll_socket();
}

bool LinkPolls::look(const Clock& clock, const std::function<bool()>& is_done) {
  static thread_local Spinner spinner;
  if (is_done()) return true;
  if (!spinner.begin()) return false;
  enter();
  const TimePoint until = clock.now() + kPollMax;
  bool is_over = false;
  const auto is_there = [&] {
    const bool has_moved = poll();
    is_over = is_done();
    return has_moved || is_over;
  };
  while (!is_over && spinner.look(clock, is_there) && clock.now() < until) {
  }
  exit();
  return is_over || is_done();
}

}  // namespace reverie
