// Reads whole files, and writes them so that no reader ever sees a partial file.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"

namespace reverie::nn {

// Writes `bytes` beside `path` and publishes them: a reader sees the old file or the new one,
// whole, also after a crash. Errors are those of FileSystem: RESOURCE_EXHAUSTED if the disk is
// full, NOT_FOUND if the folder does not exist, PERMISSION_DENIED; then an old file is unchanged.
Status write_file(const std::string& path, std::span<const std::byte> bytes);
// INVALID_ARGUMENT if it is not a file, RESOURCE_EXHAUSTED above `size_bytes_max`; else
// FileSystem's errors.
Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t size_bytes_max);

}  // namespace reverie::nn
