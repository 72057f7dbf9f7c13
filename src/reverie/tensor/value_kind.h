// The kinds of values in messages: docs/formats/values.md. The numbers are on the wire and stay.
#pragma once

#include <cstddef>
#include <cstdint>

namespace reverie {

enum class ValueKind : std::uint8_t {
  kNone = 0,
  kFalse = 1,
  kTrue = 2,
  kInteger = 3,     // of 64 bits
  kBigInteger = 4,  // of any size: a sign, then the magnitude
  kReal = 5,
  kText = 6,
  kBytes = 7,
  kList = 8,
  kTuple = 9,
  kDict = 10,  // pairs of a key and a value
  kSet = 11,
  kFrozenSet = 12,
  kNamedTuple = 13,  // its type's name and its fields' names, with a space between, then the values
  kScalar = 14,      // NumPy's: a tensor without dimensions that is not an array
  kTensor = 15,
  kComplex = 16,
  kRecord = 17,        // as a named tuple, of a class that both ends know by this name
  kPickled = 18,       // bytes that Python's pickle made; no code here reads them
  kDeviceTensor = 19,  // a tensor of a device: its bytes, or where they are in the device's memory
};

// The package that made a tensor; the receiver uses it too, if it is loaded.
enum class TensorMaker : std::uint8_t { kNumpy = 0, kTorch = 1, kJax = 2 };

inline constexpr std::size_t kValueDepthMax = 64;

}  // namespace reverie
