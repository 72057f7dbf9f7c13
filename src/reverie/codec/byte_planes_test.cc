#include "reverie/codec/byte_planes.h"

#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/support/values.h"

namespace reverie {
namespace {

TEST(BytePlanes, SplitDifferencesFromThePreviousRowByBytes) {
  const std::vector<std::uint16_t> rows = {1000, 7, 1001, 7, 1003, 7};
  const PlaneShape shape{.rows = 3, .row_elements = 2, .element_bytes = 2};
  std::vector<std::byte> planes(shape.size_bytes());
  to_planes(shape, std::as_bytes(std::span(rows)).data(), planes.data());
  const std::vector<std::uint8_t> expected = {232, 7, 1, 0, 2, 0, 3, 0, 0, 0, 0, 0};
  EXPECT_EQ(planes, value_of(DType::kUInt8, {12}, expected).bytes);
}

TEST(BytePlanes, RestoreAnyNumbers) {
  Random random(std::uint64_t{1});
  for (const std::size_t element_bytes : {2u, 4u, 8u}) {
    for (const bool is_float : {false, true}) {
      for (const std::size_t rows : {0u, 1u, 9u}) {
        const PlaneShape shape{rows, 3, element_bytes, is_float};
        std::vector<std::byte> bytes(shape.size_bytes());
        for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256));
        std::vector<std::byte> planes(bytes.size());
        std::vector<std::byte> back(bytes.size());
        to_planes(shape, bytes.data(), planes.data());
        from_planes(shape, planes.data(), back.data());
        EXPECT_EQ(back, bytes);
      }
    }
  }
}

}  // namespace
}  // namespace reverie
