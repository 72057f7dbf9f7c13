// Bounds on chunks that come from another process.
//
// Tested in: stored_chunk_test.cc
#pragma once

#include <cstdint>

namespace reverie {

// The product of these two cannot overflow. The same bounds as in reverb_wire/chunk_data.cc.
inline constexpr std::uint64_t kRowBytesMax = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kRowsMax = 1 << 24;

}  // namespace reverie
