#include "reverie/base/machine.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie {
namespace {

TEST(Machine, LoadsBeyondTheCacheTakeLonger) {
  const MemoryLimits near = measure_memory(16 << 10).value();
  const MemoryLimits far = measure_memory(64 << 20).value();
  EXPECT_GT(near.load_ns, 0.1);
  EXPECT_GT(far.load_ns, 3 * near.load_ns);
  EXPECT_GT(near.copy_bytes_per_s, 1e9);
  EXPECT_GT(far.copy_bytes_per_s, 1e8);
}

TEST(Machine, RefusesSizesTooSmallToMeasureOrTooLargeToAllocate) {
  expect_refused(measure_memory(100).status(), StatusCode::kInvalidArgument, {"100", "4096"});
  expect_refused(measure_memory(~std::size_t{0} / 4).status(), StatusCode::kResourceExhausted, {});
}

}  // namespace
}  // namespace reverie
