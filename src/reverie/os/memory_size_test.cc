#include "reverie/os/memory_size.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(MemorySize, IsPlausible) {
  EXPECT_GT(memory_size_bytes(), std::size_t{64} << 20);
  EXPECT_LT(memory_size_bytes(), std::size_t{1} << 46);
  EXPECT_EQ(memory_size_bytes(), memory_size_bytes());
}

}  // namespace
}  // namespace reverie
