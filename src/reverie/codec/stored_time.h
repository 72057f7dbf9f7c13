// Times in checkpoints and journals: nanoseconds of the system's calendar, since 1970.
#pragma once

#include <cstdint>

#include "reverie/codec/byte_stream.h"

namespace reverie {

// Below it, and not below 0: so the time of any process's clock can be taken from one, and ages
// from that.
inline constexpr std::int64_t kTimeMax = std::int64_t{1} << 62;

// Reads one. What no calendar says (before 1970, from 2116 on) fails `in`, and is 0.
inline std::int64_t read_time(ByteReader& in) {
  const std::int64_t time_ns = in.i64();
  if (time_ns >= 0 && time_ns < kTimeMax) return time_ns;
  in.fail();
  return 0;
}

}  // namespace reverie
