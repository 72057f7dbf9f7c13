// A source of table.h: queries, which change nothing.
//
// Tested in local_service_test.cc.
#include <algorithm>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "reverie/replay/table.h"

namespace reverie {

LookupResult Table::lookup(std::span<const ItemKey> keys) {
  LookupResult result;
  result.priorities.reserve(keys.size());
  result.tickets.reserve(keys.size());
  for (std::size_t begin = 0; begin < keys.size(); begin += kBreath) {
    MutexLock lock(mutex_);
    for (const ItemKey key : keys.subspan(begin, std::min(kBreath, keys.size() - begin))) {
      const auto found = core_->find(key);
      result.priorities.push_back(found ? found->priority
                                        : std::numeric_limits<double>::quiet_NaN());
      result.tickets.push_back(found ? found->ticket.packed() : 0);
    }
  }
  return result;
}

bool Table::can_insert(std::int64_t n) {
  MutexLock lock(mutex_);
  return core_->limiter().can_insert(n);
}

bool Table::can_sample(std::int64_t n) {
  MutexLock lock(mutex_);
  return core_->limiter().can_sample(n);
}

std::map<std::string, double> Table::extension_summary(std::size_t index) {
  MutexLock lock(mutex_);
  return core_->extension_summary(index, context_->clock.now());
}

SampleBatch Table::read(std::size_t skip, std::size_t count) {
  SampleBatch batch;
  apply([&](TimePoint, Effects& effects) {
    mutex_.assert_held();
    if (closed_ || skip >= core_->size()) return;
    batch.reserve(std::min(count, core_->size() - skip), /*is_brief=*/true);
    const std::uint64_t pin = core_->pin();
    if (core_->read(skip, count, batch) == 0) {
      core_->unpin(pin, effects.after);
    } else {
      batch.add_pin(Pin(shared_from_this(), pin));
    }
  });
  return batch;
}

std::size_t Table::size() {
  MutexLock lock(mutex_);
  return core_->size();
}

std::size_t Table::memory_bytes() {
  MutexLock lock(mutex_);
  return core_->memory_bytes();
}

}  // namespace reverie
