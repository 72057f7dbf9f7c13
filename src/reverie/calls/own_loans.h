// Memory of devices that this process has lent. Peers of one process find it here, since a process
// cannot open its own handles.
//
// A loan belongs to a session of two peers: its secret (Neighbour in rpc/peer_core.h) is known to
// these only, so no other peer finds the memory, whichever numbers it names. Thread-safe.
#pragma once

#include <cstdint>

#include "reverie/base/status.h"
#include "reverie/os/device_driver.h"
#include "reverie/tensor/device_record.h"

namespace reverie {

// A forked child gets another one than its parent, and than its siblings.
ProcessId own_process_id();

// `process` is another one than the own only in tests, where one process acts as two.
void add_own_loan(const ProcessId& process, int device, const DeviceAllocation& allocation,
                  std::uint64_t secret);
// Ends one loan of the allocation in that session.
void end_own_loan(const ProcessId& process, std::uint64_t allocation, std::uint64_t secret);
// DATA_LOSS if the allocation is not lent in that session; a secret of 0 belongs to none.
Result<DeviceRange> find_own_loan(const ProcessId& process, int device, std::uint64_t allocation,
                                  std::uint64_t secret);

}  // namespace reverie
