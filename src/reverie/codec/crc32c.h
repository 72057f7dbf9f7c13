// CRC32C: the checksum of everything that we write to a disk.
//
// It uses the Castagnoli polynomial, as iSCSI, ext4 and Reverb's records do: crc32c("123456789") is
// 0xe3069283.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace reverie {

// The checksum of `bytes`. Given `before`, the checksum of the preceding bytes, it is that of both
// together. 8 GB/s where the processor has an instruction for it, else 1 GB/s.
std::uint32_t crc32c(std::span<const std::byte> bytes, std::uint32_t before = 0);
// The same with tables, on any processor.
std::uint32_t crc32c_portable(std::span<const std::byte> bytes, std::uint32_t before = 0);

}  // namespace reverie
