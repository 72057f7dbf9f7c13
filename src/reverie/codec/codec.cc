// Tested in tests/python/codec_test.py.
#include "reverie/codec/codec.h"

#include <algorithm>
#include <array>

namespace reverie {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"auto", "raw", "lz4", "zstd"};

}  // namespace

std::string_view codec_choice_name(CodecChoice choice) {
  return kNames[static_cast<std::size_t>(choice)];
}

std::optional<CodecChoice> codec_choice_from_name(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found == kNames.end()) return std::nullopt;
  return static_cast<CodecChoice>(found - kNames.begin());
}

}  // namespace reverie
