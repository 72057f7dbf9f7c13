#include "reverie/calls/own_loans.h"

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/random.h"

namespace reverie {
namespace {

ProcessId random_id() {
  const std::uint64_t parts[] = {random_seed(), random_seed()};
  ProcessId id;
  static_assert(sizeof(parts) == sizeof(id));
  std::memcpy(id.data(), parts, sizeof(parts));
  return id;
}

struct LentAllocation {
  int device = 0;
  DeviceRange range;
  std::multiset<std::uint64_t> secrets;  // one for each loan
};

// A forked child has one of its own: a thread of the parent may have held the lock in the fork.
struct OwnProcess {
  const std::uint32_t generation = fork_generation();
  const ProcessId id = random_id();
  Mutex mutex;
  std::map<std::pair<ProcessId, std::uint64_t>, LentAllocation> lent REVERIE_GUARDED_BY(mutex);
};

OwnProcess& own() {
  static std::atomic<OwnProcess*> latest{nullptr};  // without a lock, for the same reason
  OwnProcess* known = latest.load();
  while (known == nullptr || known->generation != fork_generation()) {
    auto made = std::make_unique<OwnProcess>();
    if (latest.compare_exchange_strong(known, made.get())) known = made.release();
  }
  return *known;
}

}  // namespace

ProcessId own_process_id() {
  return own().id;
}

void add_own_loan(const ProcessId& process, int device, const DeviceAllocation& allocation,
                  std::uint64_t secret) {
  OwnProcess& self = own();
  MutexLock lock(self.mutex);
  LentAllocation& lent = self.lent[{process, allocation.id}];
  lent.device = device;
  lent.range = allocation.range;
  lent.secrets.insert(secret);
}

void end_own_loan(const ProcessId& process, std::uint64_t allocation, std::uint64_t secret) {
  OwnProcess& self = own();
  MutexLock lock(self.mutex);
  const auto found = self.lent.find({process, allocation});
  if (found == self.lent.end()) return;
  std::multiset<std::uint64_t>& secrets = found->second.secrets;
  (void)secrets.extract(secret);  // the other loans of the session remain
  if (secrets.empty()) self.lent.erase(found);
}

Result<DeviceRange> find_own_loan(const ProcessId& process, int device, std::uint64_t allocation,
                                  std::uint64_t secret) {
  OwnProcess& self = own();
  MutexLock lock(self.mutex);
  const auto found = self.lent.find({process, allocation});
  if (secret == 0 || found == self.lent.end() || found->second.device != device ||
      !found->second.secrets.contains(secret)) {
    return data_loss(
        "a received tensor is in memory of this process that is not lent between it and the "
        "sender");
  }
  return found->second.range;
}

}  // namespace reverie
