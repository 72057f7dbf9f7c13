// What a chunk that came from another process may be at most.
//
// Tested in: stored_chunk_test.cc
#pragma once

#include <cstdint>

namespace reverie {

// Products of these two cannot overflow. As for chunks of Reverb's (reverb_wire/chunk_data.cc).
inline constexpr std::uint64_t kRowBytesMax = std::uint64_t{1} << 32;
inline constexpr std::uint64_t kRowsMax = 1 << 24;

}  // namespace reverie
