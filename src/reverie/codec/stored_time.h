// Times in checkpoints and journals: nanoseconds of the system's calendar, since 1970.
#pragma once

#include <cstdint>

#include "reverie/codec/byte_stream.h"

namespace reverie {

// Stored times are in [0, kTimeMax), so that subtracting any process's clock from them, and ages
// from that, cannot overflow.
inline constexpr std::int64_t kTimeMax = std::int64_t{1} << 62;

// Reads a time. One out of range (before 1970, or from 2116 on) makes `in` fail, and reads as 0.
inline std::int64_t read_time(ByteReader& in) {
  const std::int64_t time_ns = in.i64();
  if (time_ns >= 0 && time_ns < kTimeMax) return time_ns;
  in.fail();
  return 0;
}

}  // namespace reverie
