// Whole files: read at once, and written so that no reader ever sees half of one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"

namespace reverie::nn {

// Writes `bytes` beside `path` and publishes them: a reader sees the old file or the new one,
// whole, also after a crash. Errors are those of FileSystem: RESOURCE_EXHAUSTED when the disk is
// full, NOT_FOUND without the folder, PERMISSION_DENIED; an old file stays as it was.
Status write_file(const std::string& path, std::span<const std::byte> bytes);
// INVALID_ARGUMENT for what is no file, RESOURCE_EXHAUSTED for more than `size_bytes_max`; else as
// FileSystem has it.
Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t size_bytes_max);

}  // namespace reverie::nn
