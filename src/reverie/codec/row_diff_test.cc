#include "reverie/codec/row_diff.h"

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie {
namespace {

using Bytes = std::vector<std::byte>;

// Random rows, of which `percent` of the bytes change from each row to the next.
std::vector<Bytes> random_rows(std::size_t row_bytes, std::size_t count, std::uint64_t percent,
                               Random& random) {
  std::vector<Bytes> rows;
  Bytes row(row_bytes);
  for (std::size_t r = 0; r < count; ++r) {
    for (std::byte& b : row) {
      if (random.below(100) < percent) b = static_cast<std::byte>(random.below(256));
    }
    rows.push_back(row);
  }
  return rows;
}

Bytes records_of(const RowDiff& diff, const std::vector<Bytes>& rows) {
  Bytes records;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    diff.append(r == 0 ? nullptr : rows[r - 1].data(), rows[r].data(), records);
  }
  return records;
}

class RowDiffTest : public ::testing::TestWithParam<RowDiff::Kernel> {};
INSTANTIATE_TEST_SUITE_P(Best, RowDiffTest, ::testing::Values(RowDiff::Kernel::kBest));
INSTANTIATE_TEST_SUITE_P(Portable, RowDiffTest, ::testing::Values(RowDiff::Kernel::kPortable));

TEST_P(RowDiffTest, RowsOfAnySizeAreRestoredInSequence) {
  Random random(std::uint64_t{1});
  for (const std::size_t row_bytes : {1u, 7u, 63u, 64u, 65u, 512u, 513u, 4096u, 7056u}) {
    for (const std::uint64_t percent : {0u, 1u, 30u, 100u}) {
      const RowDiff diff(row_bytes, GetParam());
      const auto rows = random_rows(row_bytes, 20, percent, random);
      const Bytes records = records_of(diff, rows);
      // A separate allocation, so that the sanitizer detects a write past its end.
      Bytes row(diff.padded_bytes());
      const std::byte* at = records.data();
      for (const Bytes& expected : rows) {
        at = diff.apply(at, records.data() + records.size(), row.data());
        ASSERT_NE(at, nullptr);
        ASSERT_EQ(Bytes(row.begin(), row.begin() + static_cast<std::ptrdiff_t>(row_bytes)),
                  expected)
            << row_bytes << " bytes, " << percent << " %";
      }
      EXPECT_EQ(at, records.data() + records.size());
    }
  }
}

TEST_P(RowDiffTest, ATruncatedRecordIsRefused) {
  Random random(std::uint64_t{2});
  const RowDiff diff(300, GetParam());
  const Bytes records = records_of(diff, random_rows(300, 1, 50, random));
  Bytes row(diff.padded_bytes());
  for (std::size_t size = 0; size < records.size(); ++size) {
    const Bytes cut(records.begin(), records.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(diff.apply(cut.data(), cut.data() + size, row.data()), nullptr) << size;
  }
}

TEST_P(RowDiffTest, BitsBeyondTheEndOfTheRowAreRefused) {
  const RowDiff diff(70, GetParam());  // two blocks, the last of 6 bytes
  Bytes row(diff.padded_bytes());
  Bytes third_block(1 + 8 + 1);
  third_block[0] = std::byte{0b100};
  third_block[1] = std::byte{1};
  EXPECT_EQ(diff.apply(third_block.data(), third_block.data() + third_block.size(), row.data()),
            nullptr);
  Bytes byte_70 = third_block;
  byte_70[0] = std::byte{0b010};
  byte_70[1] = std::byte{1 << 6};
  EXPECT_EQ(diff.apply(byte_70.data(), byte_70.data() + byte_70.size(), row.data()), nullptr);
  byte_70[1] = std::byte{1 << 5};
  EXPECT_NE(diff.apply(byte_70.data(), byte_70.data() + byte_70.size(), row.data()), nullptr);
}

TEST_P(RowDiffTest, RandomBytesAreRefusedOrAppliedWithinBounds) {
  Random random(std::uint64_t{3});
  const RowDiff diff(200, GetParam());
  Bytes row(diff.padded_bytes());
  for (int i = 0; i < 20'000; ++i) {
    Bytes bytes(random.below(60));
    for (std::byte& b : bytes) b = static_cast<std::byte>(random.below(256) & random.below(256));
    const std::byte* const end = bytes.data() + bytes.size();
    const std::byte* const at = diff.apply(bytes.data(), end, row.data());
    if (at != nullptr) {
      EXPECT_LE(at, end);
    }
  }
}

TEST(RowDiff, ARecordHoldsOnlyTheChangedBytes) {
  Bytes before(128, std::byte{9});
  Bytes row = before;
  row[65] = std::byte{1};
  row[67] = std::byte{2};
  Bytes record;
  RowDiff(128).append(before.data(), row.data(), record);
  const std::vector<int> expected = {0b10, 0b1010, 0, 0, 0, 0, 0, 0, 0, 1, 2};
  ASSERT_EQ(record.size(), expected.size());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::to_integer<int>(record[i]), expected[i]) << i;
  }
}

}  // namespace
}  // namespace reverie
