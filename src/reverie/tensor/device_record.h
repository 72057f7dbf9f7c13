// How a value in a message names memory of a device: docs/formats/values.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "reverie/base/device_id.h"

namespace reverie {

// 128 random bits, new for each process: process numbers repeat.
using ProcessId = std::array<std::byte, 16>;

struct DeviceRecord {
  DeviceUuid device{};
  ProcessId owner{};             // whose memory it is
  std::uint64_t allocation = 0;  // a number of the owner's
  std::uint64_t offset = 0;      // in the allocation
  DeviceHandle handle{};
};

inline constexpr std::size_t kDeviceRecordBytes = 16 + 16 + 8 + 8 + 64;

std::array<std::byte, kDeviceRecordBytes> encode_device_record(const DeviceRecord& record);
DeviceRecord decode_device_record(std::span<const std::byte, kDeviceRecordBytes> bytes);

}  // namespace reverie
