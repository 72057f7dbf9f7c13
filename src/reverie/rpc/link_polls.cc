// Tested in peer_test.cc.
#include "reverie/rpc/link_polls.h"

#include <algorithm>
#include <utility>

#include "reverie/base/spin.h"
#include "reverie/net/shared_socket.h"
#include "reverie/rpc/wire_link.h"

namespace reverie {
namespace {

thread_local Spinner spinner;

}  // namespace

void LinkPolls::watch(const std::shared_ptr<WireLink>& link) {
  std::shared_ptr<WireLink> oldest;
  {
    MutexLock lock(mutex_);
    if (link->is_over() || link->is_watched.load()) return;
    if (link->is_socket_polled.exchange(false)) --socket_count_;
    if (watched_.size() >= kWatchedMax) {
      oldest = std::move(watched_.front());
      watched_.erase(watched_.begin());
      oldest->is_watched.store(false);
    }
    link->is_watched.store(true);
    watched_.push_back(link);
    watched_count_.store(watched_.size(), std::memory_order_relaxed);
  }
  if (oldest) arm_unwatched(*oldest);
}

// What is left to read may be in the hands of a thread that is long in a handler: it calls this,
// too, once it has read.
void LinkPolls::arm_unwatched(WireLink& link) {
  while (!link.arm() && (link.poll() || link.has_work())) {
  }
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

// --- Adopted sockets.

std::shared_ptr<SocketSet> LinkPolls::set() const {
  MutexLock lock(mutex_);
  return set_;
}

Status LinkPolls::adopt(const std::shared_ptr<WireLink>& link, IoLoop& loop) {
  Connection& connection = link->connection();
  const int socket = socket_of(connection);
  if (socket < 0) return unimplemented("{} is read by its loop", connection.peer());
  MutexLock lock(mutex_);
  if (is_stopped_.load()) return failed_precondition("the peer is closed");
  if (!set_) {
    REVERIE_ASSIGN_OR_RETURN(set_, SocketSet::make(loop, [this](auto ready) { handle(ready); }));
  }
  const std::uint64_t id = next_id_++;
  REVERIE_RETURN_IF_ERROR(set_->add(id, socket));
  leave_loop(connection);
  link->adopted = {socket, id};
  if (!link->has_ring() && !link->is_socket_polled.exchange(true)) ++socket_count_;
  adopted_.emplace(id, link);
  return {};
}

void LinkPolls::remove(WireLink& link) {
  std::shared_ptr<WireLink> gone;  // is released under no lock
  MutexLock lock(mutex_);
  if (link.is_socket_polled.exchange(false)) --socket_count_;
  const auto place = adopted_.find(link.adopted.id);
  if (place == adopted_.end()) return;
  gone = std::move(place->second);
  adopted_.erase(place);
  set_->remove(link.adopted.socket);
}

void LinkPolls::want_write(WireLink& link) {
  MutexLock lock(mutex_);
  if (adopted_.contains(link.adopted.id)) {
    set_->want_write(link.adopted.id, link.adopted.socket, true);
  }
}

void LinkPolls::stop() {
  std::vector<std::shared_ptr<WireLink>> unwatched;
  std::unordered_map<std::uint64_t, std::shared_ptr<WireLink>> gone;
  MutexLock lock(mutex_);
  unwatched.swap(watched_);
  watched_count_.store(0, std::memory_order_relaxed);
  is_stopped_.store(true);
  for (const auto& [id, link] : adopted_) set_->remove(link->adopted.socket);
  gone.swap(adopted_);
  if (!set_) return;
  set_->stop();
  set_->nudge();
}

bool LinkPolls::handle(std::span<const SocketSet::Ready> ready) {
  for (const SocketSet::Ready& one : ready) {
    std::shared_ptr<WireLink> link;
    {
      MutexLock lock(mutex_);
      const auto place = adopted_.find(one.id);
      if (place == adopted_.end()) continue;
      link = place->second;
      if (one.can_write) set_->want_write(one.id, link->adopted.socket, false);
    }
    if (one.can_write) link->on_writable();
    if (one.can_read) (void)link->read_socket();
    if (link->is_ending()) remove(*link);  // its end can be read again and again
  }
  return !ready.empty();
}

void LinkPolls::wake() {
  const std::shared_ptr<SocketSet> set = this->set();
  if (set && !set->is_taken_here()) set->nudge();
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
    // What is left to read is in the hands of a thread that is here, too, or has yet to exit(), and
    // may be long in a handler. It arms the links once it has read.
    if (!poll() && !has_work()) return;
  }
}

bool LinkPolls::has_work() {
  MutexLock lock(mutex_);
  return std::ranges::any_of(watched_, [](const auto& link) { return link->has_work(); });
}

bool LinkPolls::poll() {
  if (watched_count_.load(std::memory_order_relaxed) == 0) return false;
  std::shared_ptr<WireLink> busy;
  {
    MutexLock lock(mutex_);
    const auto place = std::find_if(watched_.begin(), watched_.end(),
                                    [](const auto& link) { return link->has_work(); });
    if (place == watched_.end()) return false;
    busy = *place;
    // The next poll begins with another link.
    if (watched_.size() > 1) std::rotate(place, place + 1, watched_.end());
  }
  const bool has_moved = busy->poll();
  if (!busy->is_watched.load()) arm_unwatched(*busy);
  return has_moved;
}

bool LinkPolls::wait(const Clock& clock, const std::function<bool()>& is_done, TimePoint until,
                     bool yields) {
  SocketSet::Seat seat(yields);
  const auto is_over = [&] { return is_done() || is_stopped_.load(); };
  const auto has_moved = [&] {
    bool moved = poll();
    if (socket_count_.load(std::memory_order_relaxed) > 0 && seat.take(set())) {
      moved = handle(seat.look()) || moved;
    }
    return moved || is_over();
  };
  while (!is_over()) {
    if (spinner.begin()) {
      enter();
      while (spinner.look(clock, has_moved) && !is_over() && clock.now() < until) {
      }
      exit();
    }
    if (is_over() || clock.now() >= until || !seat.take(set()) || seat.shall_yield()) break;
    const auto ready = seat.wait(is_over, until);
    enter();
    handle(ready);
    while (!is_over() && poll()) {
    }
    exit();
  }
  return is_done();
}

}  // namespace reverie
