// The part of PeerStoreClient that returns samples in the server's memory.
//
// Tested in tests/integration/peer_store_test.cc.
#include <utility>

#include "reverie/adapters/peer/peer_store_client_parts.h"

namespace reverie {

bool PeerStoreClient::Returns::begin() {
  MutexLock lock(mutex_);
  if (is_over_) return false;
  ++held_;
  return true;
}

void PeerStoreClient::Returns::end(std::uint64_t id) {
  if (!fork_guard_.check("client").ok()) return;
  TimePoint due = TimePoint::max();
  std::shared_ptr<StoreLink> ended;
  {
    MutexLock lock(mutex_);
    const TimePoint now = Clock::system().now();
    if (ids_.empty()) due = due_ = now + kRest;
    ids_.push_back(id);
    if (ids_.size() == kCountMax) due = due_ = now;
    if (--held_ == 0) ended = std::move(kept_);
  }
  if (ended) return ended->hang_up();
  if (due == TimePoint::max()) return;
  if (const auto owner = owner_.lock()) owner->watch(due);
}

std::vector<std::uint64_t> PeerStoreClient::Returns::take_due(TimePoint now) {
  MutexLock lock(mutex_);
  if (now < due_) return {};
  due_ = TimePoint::max();
  return std::exchange(ids_, {});
}

TimePoint PeerStoreClient::Returns::due() {
  MutexLock lock(mutex_);
  return due_;
}

bool PeerStoreClient::Returns::keep(const std::shared_ptr<StoreLink>& link) {
  MutexLock lock(mutex_);
  is_over_ = true;
  if (held_ == 0) return false;
  kept_ = link;
  return true;
}

}  // namespace reverie
