#include "reverie/adapters/peer/store_link.h"

#include <atomic>
#include <utility>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/rpc/wire_link.h"

namespace reverie {
namespace {

class WireStoreLink final : public StoreLink, public std::enable_shared_from_this<WireStoreLink> {
 public:
  // Loop thread only.
  static std::shared_ptr<WireStoreLink> make(LinkLoops& loops,
                                             std::unique_ptr<Connection> connection,
                                             std::weak_ptr<StoreLinkEvents> events,
                                             const FrameLimits& limits);

  void start(std::string_view received) override;
  void trust() override;
  void send(const FrameHeader& header, std::shared_ptr<const Message> message) override;
  void hang_up() override;
  bool has_room() const override {
    return queued_bytes_.load(std::memory_order_relaxed) < kRoomBytes;
  }
  bool is_over() const override { return is_over_.load(std::memory_order_acquire); }
  std::string transport() override;
  bool offer_map(const std::shared_ptr<SharedArena>& arena) override;
  std::shared_ptr<const ArenaView> map() override;
  bool look(const std::function<bool()>& is_done) override {
    return polls_.wait(Clock::system(), is_done, TimePoint::max(), /*yields=*/false);
  }
  void post(std::function<void()> work) override { loop_.post(std::move(work)); }

 private:
  WireStoreLink(LinkLoops& loops, IoLoop& loop, std::weak_ptr<StoreLinkEvents> events)
      : loop_(loop), polls_(loops.polls_of(loop)), events_(std::move(events)) {}

  void flush() REVERIE_REQUIRES(mutex_);
  void write_on() REVERIE_REQUIRES(mutex_);
  void on_writable();
  void on_lost(const Status& why);
  void say_last() REVERIE_REQUIRES(mutex_);
  void end() REVERIE_REQUIRES(mutex_);
  void tell_room();

  IoLoop& loop_;
  LinkPolls& polls_;
  const std::weak_ptr<StoreLinkEvents> events_;
  std::atomic<std::size_t> queued_bytes_{0};
  std::atomic<bool> lacks_room_{false};
  std::atomic<bool> is_over_{false};

  Mutex mutex_;
  std::shared_ptr<WireLink> wire_ REVERIE_GUARDED_BY(mutex_);
};

std::shared_ptr<WireStoreLink> WireStoreLink::make(LinkLoops& loops,
                                                   std::unique_ptr<Connection> connection,
                                                   std::weak_ptr<StoreLinkEvents> events,
                                                   const FrameLimits& limits) {
  IoLoop& loop = connection->loop();
  std::shared_ptr<WireStoreLink> made(new WireStoreLink(loops, loop, std::move(events)));
  connection->accept_descriptors();
  // The events live as long as the wire, which may outlive this object for a moment.
  const auto wire_events = std::make_shared<WireLink::Events>();
  const std::weak_ptr<WireStoreLink> weak = made;
  wire_events->received = [weak](LinkId, std::vector<Frame> frames) {
    const auto self = weak.lock();
    if (!self || self->is_over() || frames.empty()) return;
    if (const auto to = self->events_.lock()) to->on_frames(std::move(frames));
  };
  wire_events->lost = [weak](LinkId, const Status& why) {
    if (const auto self = weak.lock()) self->on_lost(why);
  };
  wire_events->writable = [weak](LinkId) {
    if (const auto self = weak.lock()) self->on_writable();
  };
  wire_events->shared = [weak](LinkId, const Frame& frame, int descriptor) -> Status {
    const auto self = weak.lock();
    if (!self) return {};
    MutexLock lock(self->mutex_);
    if (!self->wire_) return {};
    Status status = self->wire_->on_share_frame(frame, descriptor);
    if (status.ok() && !self->wire_->is_flush_posted) self->write_on();
    return status;
  };
  wire_events->rings = [weak](LinkId) {
    const auto self = weak.lock();
    if (!self) return;
    MutexLock lock(self->mutex_);
    if (self->wire_) self->wire_->ring_doorbell();
  };
  wire_events->on_doorbell = [weak](LinkId) {
    const auto self = weak.lock();
    if (!self) return;
    std::shared_ptr<WireLink> wire;
    {
      MutexLock lock(self->mutex_);
      if (self->wire_ && self->wire_->has_ring()) wire = self->wire_;
    }
    if (wire) self->polls_.watch(wire);
  };
  wire_events->on_return_due = [weak, &loop](LinkId) {
    loop.post([weak] {
      const auto self = weak.lock();
      if (!self) return;
      MutexLock lock(self->mutex_);
      if (self->wire_) self->wire_->rest(Clock::system().now());
    });
  };
  MutexLock lock(made->mutex_);
  made->wire_ = {
      new WireLink(1, std::move(connection), nullptr, made->polls_.count(), *wire_events),
      [wire_events, &loop](WireLink* wire) {
        std::shared_ptr<WireLink> last(wire, [wire_events](WireLink* w) { delete w; });
        if (!loop.is_current()) loop.post([kept = std::move(last)] {});
      }};
  made->wire_->set_limits(limits);
  return made;
}

void WireStoreLink::start(std::string_view received) {
  std::shared_ptr<WireLink> wire;
  {
    MutexLock lock(mutex_);
    wire = wire_;
  }
  if (!wire) return;
  received.empty() ? wire->start() : wire->start(received);
}

void WireStoreLink::trust() {
  MutexLock lock(mutex_);
  if (!wire_) return;
  wire_->trust();
  wire_->shares_next = wire_->connection().accepts_descriptors();
}

void WireStoreLink::send(const FrameHeader& header, std::shared_ptr<const Message> message) {
  MutexLock lock(mutex_);
  if (!wire_) return;
  wire_->queue(header, std::move(message));
  if (wire_->shares_next) {
    wire_->shares_next = false;
    wire_->offer_share({random_seed(), random_seed()});
  }
  flush();
}

// Writes at once if that is permitted: to a ring on any thread, to a socket on its loop thread.
void WireStoreLink::flush() {
  WireLink& wire = *wire_;
  if (!wire.is_flush_posted && wire.has_output()) {
    if (wire.is_out_ring() || loop_.is_current() || wire.connection().can_write_on_any_thread()) {
      if (wire.is_out_ring() || loop_.is_current()) {
        write_on();
      } else if (!wire.flush()) {
        wire.is_flush_posted = true;
        loop_.post([self = shared_from_this()] { self->on_writable(); });
      }
    } else {
      wire.is_flush_posted = true;
      loop_.post([self = shared_from_this()] { self->on_writable(); });
    }
  }
  const std::size_t queued = wire.queued_bytes();
  queued_bytes_.store(queued, std::memory_order_relaxed);
  if (queued >= kRoomBytes) {
    lacks_room_.store(true);
  } else if (lacks_room_.load()) {
    // This call has written what waited, so the ring may report no room any more.
    loop_.post([self = shared_from_this()] { self->tell_room(); });
  }
}

// Writes, and asks for an event when there is room. A ring reports room by itself.
void WireStoreLink::write_on() {
  WireLink& wire = *wire_;
  if (wire.flush() || wire.is_out_ring()) return;
  wire.is_flush_posted = true;
  wire.connection().want_write();
}

void WireStoreLink::on_writable() {
  {
    MutexLock lock(mutex_);
    if (!wire_) return;
    wire_->is_flush_posted = false;
    write_on();
    queued_bytes_.store(wire_->queued_bytes(), std::memory_order_relaxed);
  }
  tell_room();
}

void WireStoreLink::tell_room() {
  if (!has_room() || !lacks_room_.exchange(false)) return;
  if (const auto to = events_.lock()) to->on_room();
}

void WireStoreLink::end() {
  is_over_.store(true, std::memory_order_release);
  wire_->end();
  polls_.unwatch(wire_.get());
  // Later: it may be running now.
  loop_.post([gone = std::move(wire_)] {});
  wire_ = nullptr;
}

void WireStoreLink::on_lost(const Status& why) {
  const auto to = events_.lock();
  const bool is_refused = why.code() != StatusCode::kUnavailable;
  const std::shared_ptr<const Message> last = to && is_refused ? to->refusal(why) : nullptr;
  {
    MutexLock lock(mutex_);
    if (!wire_) return;
    if (last) wire_->queue({FrameKind::kRefused, 0, 0, 0}, last);
    if (last) say_last();
    end();
  }
  if (to) to->on_lost(why);
}

void WireStoreLink::say_last() {
  if (loop_.is_current() || wire_->is_out_ring() || wire_->connection().can_write_on_any_thread()) {
    wire_->flush();
  }
  wire_->connection().shut_down();
}

void WireStoreLink::hang_up() {
  MutexLock lock(mutex_);
  if (!wire_) return;
  say_last();
  end();
}

bool WireStoreLink::offer_map(const std::shared_ptr<SharedArena>& arena) {
  MutexLock lock(mutex_);
  return wire_ && wire_->offer_map(arena);
}

std::shared_ptr<const ArenaView> WireStoreLink::map() {
  MutexLock lock(mutex_);
  return wire_ ? wire_->map() : nullptr;
}

std::string WireStoreLink::transport() {
  MutexLock lock(mutex_);
  return wire_ ? wire_->transport() : "nothing";
}

}  // namespace

std::shared_ptr<StoreLink> StoreLink::make(LinkLoops& loops, std::unique_ptr<Connection> connection,
                                           std::weak_ptr<StoreLinkEvents> events,
                                           const FrameLimits& limits) {
  return WireStoreLink::make(loops, std::move(connection), std::move(events), limits);
}

}  // namespace reverie
