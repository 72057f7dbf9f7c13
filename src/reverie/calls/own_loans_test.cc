#include "reverie/calls/own_loans.h"

#include <cstdint>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

namespace reverie {
namespace {

constexpr int kDevice = 0;
constexpr std::uint64_t kSecret = 7;
constexpr std::uint64_t kOther = 8;

StatusCode found(std::uint64_t allocation, std::uint64_t secret, int device = kDevice) {
  return find_own_loan(own_process_id(), device, allocation, secret).status().code();
}

TEST(OwnLoans, AreFoundInTheirSessionUntilTheLastEnds) {
  const ProcessId process = own_process_id();
  const DeviceAllocation allocation{{4096, 512}, /*id=*/1, {}};
  EXPECT_EQ(found(1, kSecret), StatusCode::kDataLoss);
  for (int i = 0; i < 2; ++i) add_own_loan(process, kDevice, allocation, kSecret);
  add_own_loan(process, kDevice, allocation, kOther);
  add_own_loan(process, kDevice, allocation, 0);
  const auto range = find_own_loan(process, kDevice, 1, kSecret);
  ASSERT_TRUE(range.ok());
  EXPECT_EQ(range->address, 4096u);
  EXPECT_EQ(range->size_bytes, 512u);
  EXPECT_EQ(found(1, kOther), StatusCode::kOk);
  EXPECT_EQ(found(1, kSecret + kOther), StatusCode::kDataLoss);
  EXPECT_EQ(found(1, 0), StatusCode::kDataLoss);
  EXPECT_EQ(found(2, kSecret), StatusCode::kDataLoss);
  EXPECT_EQ(found(1, kSecret, kDevice + 1), StatusCode::kDataLoss);

  end_own_loan(process, 1, kSecret);
  EXPECT_EQ(found(1, kSecret), StatusCode::kOk);
  end_own_loan(process, 1, kSecret);
  EXPECT_EQ(found(1, kSecret), StatusCode::kDataLoss);
  EXPECT_EQ(found(1, kOther), StatusCode::kOk);
  end_own_loan(process, 1, kOther);
  end_own_loan(process, 1, 0);
  EXPECT_EQ(found(1, kOther), StatusCode::kDataLoss);
}

// It shares neither the parent's loans nor their lock, which a thread of the parent may hold.
TEST(OwnLoans, BelongToTheProcessAndNotToItsForkedChildren) {
  const ProcessId process = own_process_id();
  add_own_loan(process, kDevice, {{4096, 512}, /*id=*/1, {}}, kSecret);
  const pid_t child = ::fork();
  if (child == 0) {
    const bool is_apart =
        own_process_id() != process && !find_own_loan(process, kDevice, 1, kSecret).ok();
    ::_exit(is_apart ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_EQ(found(1, kSecret), StatusCode::kOk);
  end_own_loan(process, 1, kSecret);
}

}  // namespace
}  // namespace reverie
