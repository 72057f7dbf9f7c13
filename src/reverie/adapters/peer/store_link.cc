// Tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/store_link.h"

#include <utility>

#include "reverie/base/random.h"

namespace reverie {

std::shared_ptr<StoreLink> StoreLink::make(LinkLoops& loops, std::unique_ptr<Connection> connection,
                                           std::weak_ptr<StoreLinkEvents> events,
                                           const FrameLimits& limits) {
  IoLoop& loop = connection->loop();
  std::shared_ptr<StoreLink> made(new StoreLink(loops, loop, std::move(events)));
  made->peer_ = connection->peer();
  connection->accept_descriptors();
  // The events live as long as the wire, which may outlive this object for a moment.
  const auto wire_events = std::make_shared<WireLink::Events>();
  const std::weak_ptr<StoreLink> weak = made;
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

void StoreLink::start(std::string_view received) {
  std::shared_ptr<WireLink> wire;
  {
    MutexLock lock(mutex_);
    wire = wire_;
  }
  if (!wire) return;
  received.empty() ? wire->start() : wire->start(received);
}

void StoreLink::trust() {
  MutexLock lock(mutex_);
  if (!wire_) return;
  wire_->trust();
  wire_->shares_next = wire_->connection().accepts_descriptors();
}

void StoreLink::send(const FrameHeader& header, std::shared_ptr<const Message> message) {
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
void StoreLink::flush() {
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
  if (queued >= kRoomBytes) lacks_room_.store(true);
}

// Writes, and asks for an event when there is room. A ring reports room by itself.
void StoreLink::write_on() {
  WireLink& wire = *wire_;
  if (wire.flush() || wire.is_out_ring()) return;
  wire.is_flush_posted = true;
  wire.connection().want_write();
}

void StoreLink::on_writable() {
  {
    MutexLock lock(mutex_);
    if (!wire_) return;
    wire_->is_flush_posted = false;
    write_on();
    queued_bytes_.store(wire_->queued_bytes(), std::memory_order_relaxed);
  }
  tell_room();
}

void StoreLink::tell_room() {
  if (!has_room() || !lacks_room_.exchange(false)) return;
  if (const auto to = events_.lock()) to->on_room();
}

void StoreLink::end() {
  is_over_.store(true, std::memory_order_release);
  wire_->end();
  polls_.unwatch(wire_.get());
  // Later: it may be running now.
  loop_.post([gone = std::move(wire_)] {});
  wire_ = nullptr;
}

void StoreLink::on_lost(const Status& why) {
  {
    MutexLock lock(mutex_);
    if (!wire_) return;
    end();
  }
  if (const auto to = events_.lock()) to->on_lost(why);
}

void StoreLink::hang_up() {
  MutexLock lock(mutex_);
  if (!wire_) return;
  if (loop_.is_current() || wire_->is_out_ring() || wire_->connection().can_write_on_any_thread()) {
    wire_->flush();
  }
  wire_->connection().shut_down();
  end();
}

bool StoreLink::offer_map(const std::shared_ptr<SharedArena>& arena) {
  MutexLock lock(mutex_);
  return wire_ && wire_->offer_map(arena);
}

std::shared_ptr<const ArenaView> StoreLink::map() {
  MutexLock lock(mutex_);
  return wire_ ? wire_->map() : nullptr;
}

std::string StoreLink::transport() {
  MutexLock lock(mutex_);
  return wire_ ? wire_->transport() : "nothing";
}

}  // namespace reverie
