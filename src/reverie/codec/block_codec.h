// One block of bytes through lz4 or zstd, and back.
//
// The size of the result is never taken from the compressed bytes: the caller states the size, and
// gets exactly so many bytes or an error. Without memory for the libraries both throw
// std::bad_alloc, so that a block is not taken for a damaged one.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reverie/codec/codec.h"

namespace reverie {

// The largest block: the limit of lz4.
inline constexpr std::size_t kBlockBytesMax = 0x7E000000;

// Appends the compressed form of `plain` to `out`. Requires at most kBlockBytesMax bytes, and kLz4
// or kZstd. Thread-safe; a call takes about 1 MB of working memory for the libraries from a pool,
// which keeps at most one block per core.
void compress_block(CodecId codec, std::span<const std::byte> plain, std::vector<std::byte>& out);

// True if `bytes` are a block of exactly `plain.size()` bytes. If false, the contents of `plain`
// are undefined. Requires the same as compress_block.
[[nodiscard]] bool decompress_block(CodecId codec, std::span<const std::byte> bytes,
                                    std::span<std::byte> plain);

}  // namespace reverie
