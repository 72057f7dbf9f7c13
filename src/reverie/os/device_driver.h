// What is used of a GPU's driver, to pass memory of a device from one process to another.
//
//     sender     export_memory(tensor)  -->  handle                     CUDA calls this IPC
//     receiver                               handle  -->  open(), copy(), close()
//
// Only devices that the program itself uses count: nothing here loads a driver or makes a context,
// which takes hundreds of megabytes. An interface, so that tests need no GPU.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "reverie/base/clock.h"
#include "reverie/base/device_id.h"
#include "reverie/base/status.h"

namespace reverie {

struct DeviceRange {
  std::uint64_t address = 0;
  std::uint64_t size_bytes = 0;
};

// What the driver gave out at once; a tensor is a part of it.
struct DeviceAllocation {
  DeviceRange range;
  std::uint64_t id = 0;  // not used for another allocation of the process
  DeviceHandle handle{};
};

// Random bytes in a device's memory, from which another process shows that it reads there.
struct DeviceNonce {
  std::uint64_t address = 0;
  std::array<std::byte, 16> bytes{};
};

// Thread-safe. A `stream` is the driver's handle of a queue of work for a device; 0 is the default
// one. UNAVAILABLE wherever the driver refuses.
class DeviceDriver {
 public:
  virtual ~DeviceDriver() = default;

  // The index of a device, and the device of an index, if the program uses it.
  virtual std::optional<int> find(const DeviceUuid& uuid) = 0;
  virtual std::optional<DeviceUuid> uuid_of(int device) = 0;

  // The allocation that holds `address`. UNAVAILABLE for memory that has no handle, as that of
  // torch's expandable segments.
  virtual Result<DeviceAllocation> export_memory(int device, std::uint64_t address) = 0;
  // Maps another process's allocation; close() ends that. Any handle is safe to open.
  virtual Result<DeviceRange> open(int device, const DeviceHandle& handle) = 0;
  virtual void close(int device, std::uint64_t address) = 0;

  // The nonce of this process, which stays until its end.
  virtual Result<DeviceNonce> nonce(int device) = 0;
  // Queues a copy within the device.
  virtual Status copy(int device, std::uint64_t to, std::uint64_t from, std::size_t size_bytes,
                      std::uint64_t stream) = 0;
  // Copies, and waits until that is done.
  virtual Status copy_to_host(int device, std::span<std::byte> to, std::uint64_t from) = 0;
  // Waits until what is queued now is done. DEADLINE_EXCEEDED if it is not by then.
  virtual Status wait(int device, std::uint64_t stream, TimePoint deadline) = 0;
};

}  // namespace reverie
