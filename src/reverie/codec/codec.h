// How a column's bytes are encoded.
//
// Columns are sent as opaque bytes with the id of their codec, and kept as they were sent. Raw rows
// are gathered with one copy; compressed rows take less memory and are decoded when gathered.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace reverie {

// Files and messages contain these numbers.
enum class CodecId : std::uint8_t {
  kRaw = 0,
  kLz4 = 1,   // quick to read
  kZstd = 2,  // smaller
  // The name of a file and a place in it: codec/external_column.h.
  kExternal = 3,
  // As Reverb's clients send them: codec/reverb_column.h.
  kReverb = 16,
  kReverbDelta = 17,
};

// How a writer is configured to encode a column.
enum class CodecChoice : std::uint8_t {
  kAuto,  // lz4 for large rows of integers, while it saves memory; else raw
  kRaw,
  kLz4,
  kZstd,
};

// "auto", "raw", "lz4", "zstd".
std::string_view codec_choice_name(CodecChoice choice);
std::optional<CodecChoice> codec_choice_from_name(std::string_view name);

}  // namespace reverie
