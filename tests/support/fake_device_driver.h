// A driver of a GPU that there is not: its memory is shared memory of this host, which other
// processes open by the process and descriptor that are in the handle.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <utility>

#include <unistd.h>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/os/device_driver.h"
#include "reverie/os/shared_memory.h"

namespace reverie {

class FakeDeviceDriver final : public DeviceDriver {
 public:
  // One device, of index 0. `number` is its UUID.
  explicit FakeDeviceDriver(std::uint64_t number = 1) { std::memcpy(uuid_.data(), &number, 8); }

  std::atomic<bool> is_used{true};        // by the program
  std::atomic<bool> has_handles{true};    // else memory has none
  std::atomic<bool> opens_handles{true};  // else they are refused
  std::atomic<int> opened{0};             // handles, since the start
  std::atomic<int> closed{0};
  std::atomic<std::size_t> copied_bytes{0};

  // New memory of the device; it is freed with the driver.
  std::span<std::byte> allocate(std::size_t size_bytes) {
    SharedMemory memory = SharedMemory::create("fake-device", size_bytes).value();
    MutexLock lock(mutex_);
    const std::span<std::byte> bytes = memory.bytes();
    own_.emplace(next_id_++, std::move(memory));
    return bytes;
  }
  static std::uint64_t address(std::span<const std::byte> bytes) {
    return reinterpret_cast<std::uintptr_t>(bytes.data());
  }

  std::optional<int> find(const DeviceUuid& uuid) override {
    return is_used && uuid == uuid_ ? std::optional(0) : std::nullopt;
  }
  std::optional<DeviceUuid> uuid_of(int device) override {
    return is_used && device == 0 ? std::optional(uuid_) : std::nullopt;
  }

  Result<DeviceAllocation> export_memory(int, std::uint64_t at) override {
    if (!has_handles) return unavailable("this memory has no handle");
    MutexLock lock(mutex_);
    for (const auto& [id, memory] : own_) {
      const std::uint64_t begin = address(memory.bytes());
      const std::size_t size = memory.bytes().size();
      if (at < begin || at >= begin + size) continue;
      DeviceAllocation found{{begin, size}, id, {}};
      const Handle handle{kMagic, ::getpid(), memory.fd()};
      std::memcpy(found.handle.data(), &handle, sizeof(handle));
      return found;
    }
    return unavailable("no memory of the device is there");
  }

  Result<DeviceRange> open(int, const DeviceHandle& given) override {
    Handle handle;
    std::memcpy(&handle, given.data(), sizeof(handle));
    if (!opens_handles || handle.magic != kMagic) return unavailable("the handle is refused");
    REVERIE_ASSIGN_OR_RETURN(SharedMemory memory,
                             SharedMemory::open_of(handle.process, handle.descriptor));
    const DeviceRange range{address(memory.bytes()), memory.bytes().size()};
    MutexLock lock(mutex_);
    ++opened;
    opened_.emplace(range.address, std::move(memory));
    return range;
  }
  void close(int, std::uint64_t at) override {
    MutexLock lock(mutex_);
    closed += static_cast<int>(opened_.erase(at));
  }

  Result<DeviceNonce> nonce(int) override {
    std::call_once(has_nonce_, [this] {
      const std::span<std::byte> made = allocate(nonce_.bytes.size());
      nonce_.address = address(made);
      for (std::byte& byte : nonce_.bytes) byte = static_cast<std::byte>(random_seed());
      std::ranges::copy(nonce_.bytes, made.begin());
    });
    return nonce_;
  }
  Status copy(int, std::uint64_t to, std::uint64_t from, std::size_t size_bytes,
              std::uint64_t) override {
    std::memcpy(reinterpret_cast<void*>(to), reinterpret_cast<const void*>(from), size_bytes);
    copied_bytes += size_bytes;
    return {};
  }
  Status copy_to_host(int, std::span<std::byte> to, std::uint64_t from) override {
    std::memcpy(to.data(), reinterpret_cast<const void*>(from), to.size());
    return {};
  }
  Status wait(int, std::uint64_t, TimePoint) override { return {}; }

 private:
  static constexpr std::uint64_t kMagic = 0x5245564445564943;
  struct Handle {
    std::uint64_t magic;
    std::int64_t process;
    int descriptor;
  };

  DeviceUuid uuid_{};
  std::once_flag has_nonce_;
  DeviceNonce nonce_;
  Mutex mutex_;
  std::map<std::uint64_t, SharedMemory> own_ REVERIE_GUARDED_BY(mutex_);
  std::multimap<std::uint64_t, SharedMemory> opened_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t next_id_ REVERIE_GUARDED_BY(mutex_) = 1;
};

}  // namespace reverie
