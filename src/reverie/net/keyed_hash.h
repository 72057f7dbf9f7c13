// A hash that only a holder of the key can make: HMAC with SHA-256 (RFC 2104).
//
// Two peers prove to each other that they have the same token by hashing fresh random bytes of both
// with it. The token itself is never sent.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace reverie {

using KeyedHash = std::array<std::byte, 32>;

KeyedHash keyed_hash(std::string_view key, std::span<const std::byte> message);

// Takes the same time wherever the first difference is. False if the sizes differ.
bool is_equal_in_constant_time(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace reverie
