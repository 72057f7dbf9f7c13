// Whole files: read at once, and written so that no reader ever sees half of one.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "reverie/base/status.h"

namespace reverie::nn {

// Writes `bytes` beside `path` and renames them: a reader sees the old file or the new one, whole,
// also after a crash. RESOURCE_EXHAUSTED when the disk is full, NOT_FOUND without the folder,
// PERMISSION_DENIED, else UNAVAILABLE; an old file stays as it was.
Status write_file(const std::string& path, std::span<const std::byte> bytes);
// NOT_FOUND, PERMISSION_DENIED; RESOURCE_EXHAUSTED for more than `size_bytes_max`; else
// UNAVAILABLE.
Result<std::vector<std::byte>> read_file(const std::string& path, std::size_t size_bytes_max);

}  // namespace reverie::nn
