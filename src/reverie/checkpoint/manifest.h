// The manifest: the files of a checkpoint, with sizes and checksums.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

// The largest payload of a checkpoint; see check_user_payload() for that of a user.
inline constexpr std::uint64_t kPayloadBytesMax = std::uint64_t{1} << 30;

struct ManifestFile {
  std::string name;
  std::uint64_t size_bytes = 0;
  // The checksum of all bytes. 0 if it is not known: of a file of chunks that an earlier release
  // has written. Each chunk has its own, too, in `tables`.
  std::uint32_t crc = 0;
};

struct Manifest {
  std::uint64_t number = 0;
  std::int64_t created_ns = 0;      // since 1970
  std::vector<ManifestFile> files;  // `tables` first
  std::vector<std::byte> payload;   // from the user
};

Status write_manifest(FileSystem& files, const std::string& path, const Manifest& manifest);
// DATA_LOSS if it is damaged, or names a file that cannot belong to a checkpoint.
Result<Manifest> read_manifest(FileSystem& files, const std::string& path);

}  // namespace reverie::checkpoint
