// Tested in tests/integration/unreadable_items_test.cc.
#include "reverie/base/lost_bytes.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"

namespace reverie {

struct LostBytesList {
  // Calls that a program's end makes may come after static objects are destroyed.
  static LostBytesList& all() {
    static auto* const list = new LostBytesList;
    return *list;
  }
  bool overlap(std::span<const std::byte> bytes) {
    const MutexLock lock(mutex);
    return std::ranges::any_of(registered, [&](const LostBytes* memory) {
      const auto* const begin = memory->memory_.data();
      return std::greater_equal<>()(bytes.data(), begin) &&
             std::less<>()(bytes.data(), begin + memory->memory_.size()) &&
             memory->has_lost_(bytes);
    });
  }

  Mutex mutex;
  std::vector<const LostBytes*> registered REVERIE_GUARDED_BY(mutex);
};

namespace {

std::atomic<bool> any_lost{false};

}  // namespace

LostBytes::LostBytes(std::span<const std::byte> memory, HasLost has_lost)
    : memory_(memory), has_lost_(std::move(has_lost)) {
  LostBytesList& list = LostBytesList::all();
  const MutexLock lock(list.mutex);
  list.registered.push_back(this);
}

LostBytes::~LostBytes() {
  LostBytesList& list = LostBytesList::all();
  const MutexLock lock(list.mutex);
  std::erase(list.registered, this);
}

void LostBytes::announce() noexcept {
  any_lost.store(true, std::memory_order_release);
}

bool LostBytes::any() noexcept {
  return any_lost.load(std::memory_order_acquire);
}

bool LostBytes::overlap(std::span<const std::byte> bytes) {
  return any() && LostBytesList::all().overlap(bytes);
}

}  // namespace reverie
