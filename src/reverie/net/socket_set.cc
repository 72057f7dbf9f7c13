#include "reverie/net/socket_set.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace reverie {
namespace {

constexpr std::uint64_t kBellId = 0;
constexpr Duration kSleepMax = std::chrono::hours(1);

// The set in whose seat this thread is.
thread_local const SocketSet* seated = nullptr;

bool control(int set, int operation, int descriptor, std::uint32_t events, std::uint64_t id) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  return ::epoll_ctl(set, operation, descriptor, &event) == 0;
}

}  // namespace

struct SocketSet::Relay {
  Relay(IoLoop& loop, int descriptor) : watched(loop.context(), descriptor) {}
  ~Relay() { watched.release(); }  // the set closes it
  asio::posix::stream_descriptor watched;
};

Result<std::shared_ptr<SocketSet>> SocketSet::make(IoLoop& loop, OnReady on_ready) {
  std::shared_ptr<SocketSet> made(new SocketSet());
  made->set_ = ::epoll_create1(EPOLL_CLOEXEC);
  made->relay_ = ::epoll_create1(EPOLL_CLOEXEC);
  made->bell_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (made->set_ < 0 || made->relay_ < 0 || made->bell_ < 0 ||
      !control(made->set_, EPOLL_CTL_ADD, made->bell_, EPOLLIN, kBellId) ||
      !control(made->relay_, EPOLL_CTL_ADD, made->set_, EPOLLIN, 0)) {
    return resource_exhausted("no set of sockets could be made: {}", std::strerror(errno));
  }
  made->on_ready_ = std::move(on_ready);
  made->loop_part_ = std::make_unique<Relay>(loop, made->relay_);
  made->watch_relay();
  return made;
}

SocketSet::~SocketSet() {
  for (const int descriptor : {relay_, set_, bell_}) {
    if (descriptor >= 0) ::close(descriptor);
  }
}

void SocketSet::stop() {
  loop_part_.reset();
  on_ready_ = nullptr;
}

Status SocketSet::add(std::uint64_t id, int socket) {
  REVERIE_CHECK(id != kBellId);
  if (control(set_, EPOLL_CTL_ADD, socket, EPOLLIN, id)) return {};
  return resource_exhausted("a socket cannot be watched: {}", std::strerror(errno));
}

void SocketSet::remove(int socket) {
  (void)control(set_, EPOLL_CTL_DEL, socket, 0, 0);
}

void SocketSet::want_write(std::uint64_t id, int socket, bool is_wanted) {
  (void)control(set_, EPOLL_CTL_MOD, socket, is_wanted ? EPOLLIN | EPOLLOUT : EPOLLIN, id);
}

bool SocketSet::take_seat(bool yields) {
  MutexLock lock(mutex_);
  if (holder_ != Holder::kNone) {
    if (holder_ == Holder::kThread && yields_ && !yields) {
      shall_yield_.store(true, std::memory_order_relaxed);
      nudge_locked();
    }
    return false;
  }
  holder_ = Holder::kThread;
  yields_ = yields;
  shall_yield_.store(false, std::memory_order_relaxed);
  is_taken_.store(true, std::memory_order_relaxed);
  open_relay(false);
  return true;
}

void SocketSet::leave_seat() {
  MutexLock lock(mutex_);
  holder_ = Holder::kNone;
  is_taken_.store(false, std::memory_order_relaxed);
  open_relay(true);
}

// Opening it reports what arrived meanwhile.
void SocketSet::open_relay(bool is_open) {
  (void)control(relay_, EPOLL_CTL_MOD, set_, is_open ? std::uint32_t{EPOLLIN} : 0, 0);
}

std::span<const SocketSet::Ready> SocketSet::wait_for(std::span<Ready, kReadyMax> into,
                                                      int timeout_ms) {
  std::array<epoll_event, kReadyMax> events;
  const int count = ::epoll_wait(set_, events.data(), static_cast<int>(kReadyMax), timeout_ms);
  std::size_t size = 0;
  for (int i = 0; i < count; ++i) {
    const epoll_event& event = events[static_cast<std::size_t>(i)];
    if (event.data.u64 == kBellId) {
      std::uint64_t rings = 0;
      (void)!::read(bell_, &rings, sizeof(rings));
      continue;
    }
    into[size++] = {event.data.u64, (event.events & ~std::uint32_t{EPOLLOUT}) != 0,
                    (event.events & EPOLLOUT) != 0};
  }
  return into.first(size);
}

std::span<const SocketSet::Ready> SocketSet::wait(std::span<Ready, kReadyMax> into,
                                                  const std::function<bool()>& is_done,
                                                  TimePoint until) {
  {
    MutexLock lock(mutex_);
    is_sleeping_ = true;
  }
  std::span<const Ready> ready;
  const TimePoint now = Clock::system().now();
  if (!is_done() && !shall_yield() && now < until) {
    // Rounded up: waking up before the deadline would only lead to another wait.
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        until - now < kSleepMax ? until - now : kSleepMax);
    ready = wait_for(into, static_cast<int>(left.count()));
  }
  MutexLock lock(mutex_);
  is_sleeping_ = false;
  return ready;
}

void SocketSet::nudge() {
  MutexLock lock(mutex_);
  nudge_locked();
}

void SocketSet::nudge_locked() {
  if (!std::exchange(is_sleeping_, false)) return;
  const std::uint64_t one = 1;
  (void)!::write(bell_, &one, sizeof(one));
}

bool SocketSet::is_taken_here() const {
  return seated == this;
}

SocketSet::Seat::~Seat() {
  if (!set_) return;
  seated = outer_;
  set_->leave_seat();
}

bool SocketSet::Seat::take(const std::shared_ptr<SocketSet>& set) {
  if (set_) return true;
  if (!set || !set->take_seat(yields_)) return false;
  set_ = set;
  outer_ = std::exchange(seated, set.get());
  return true;
}

void SocketSet::watch_relay() {
  loop_part_->watched.async_wait(asio::posix::stream_descriptor::wait_read,
                                 [weak = weak_from_this()](const asio::error_code&) {
                                   const auto self = weak.lock();
                                   if (self && self->loop_part_) self->on_relay();
                                 });
}

void SocketSet::on_relay() {
  bool has_seat = false;
  {
    MutexLock lock(mutex_);
    has_seat = holder_ == Holder::kNone;
    if (has_seat) holder_ = Holder::kLoop;
  }
  if (has_seat) {
    std::array<Ready, kReadyMax> memory;
    const std::span<const Ready> ready = look(memory);
    on_ready_(ready);
    MutexLock lock(mutex_);
    holder_ = Holder::kNone;
  }
  if (loop_part_) watch_relay();
}

}  // namespace reverie
