// Tested in value_test.cc.
#include "reverie/tensor/device_record.h"

#include <cstring>

namespace reverie {
namespace {

constexpr std::size_t kOwnerAt = 16;
constexpr std::size_t kAllocationAt = 32;
constexpr std::size_t kOffsetAt = 40;
constexpr std::size_t kHandleAt = 48;

}  // namespace

std::array<std::byte, kDeviceRecordBytes> encode_device_record(const DeviceRecord& record) {
  std::array<std::byte, kDeviceRecordBytes> bytes;
  std::memcpy(bytes.data(), record.device.data(), record.device.size());
  std::memcpy(&bytes[kOwnerAt], record.owner.data(), record.owner.size());
  std::memcpy(&bytes[kAllocationAt], &record.allocation, sizeof(record.allocation));
  std::memcpy(&bytes[kOffsetAt], &record.offset, sizeof(record.offset));
  std::memcpy(&bytes[kHandleAt], record.handle.data(), record.handle.size());
  return bytes;
}

DeviceRecord decode_device_record(std::span<const std::byte, kDeviceRecordBytes> bytes) {
  DeviceRecord record;
  std::memcpy(record.device.data(), bytes.data(), record.device.size());
  std::memcpy(record.owner.data(), &bytes[kOwnerAt], record.owner.size());
  std::memcpy(&record.allocation, &bytes[kAllocationAt], sizeof(record.allocation));
  std::memcpy(&record.offset, &bytes[kOffsetAt], sizeof(record.offset));
  std::memcpy(record.handle.data(), &bytes[kHandleAt], record.handle.size());
  return record;
}

}  // namespace reverie
