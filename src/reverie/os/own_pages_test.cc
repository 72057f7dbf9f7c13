#include "reverie/os/own_pages.h"

#include <cstddef>

#include <gtest/gtest.h>
#include <sys/mman.h>

#include "reverie/os/shared_memory.h"

namespace reverie {
namespace {

constexpr std::size_t kOwnPagesBytes = std::size_t{4} << 20;
constexpr std::size_t kPage = 4096;

TEST(OwnPages, AreThePagesWrittenAndNotThoseRead) {
  Result<SharedMemory> owner = SharedMemory::create("own-pages", kOwnPagesBytes);
  ASSERT_TRUE(owner.ok());
  for (std::byte& byte : owner->bytes()) byte = std::byte{1};
  Result<SharedMemory> mine = SharedMemory::open(owner->fd(), SharedMemory::Mapping::kCopyOnWrite);
  ASSERT_TRUE(mine.ok());
  const std::span<std::byte> bytes = mine->bytes();
  volatile std::size_t sum = 0;
  for (std::size_t at = 0; at < bytes.size(); at += kPage) {
    sum = sum + static_cast<std::size_t>(bytes[at]);
  }
  EXPECT_EQ(sum, kOwnPagesBytes / kPage);
  if (has_own_pages(bytes)) GTEST_SKIP() << "the system cannot say";
  for (const std::size_t written : {std::size_t{0}, kOwnPagesBytes / 2, kOwnPagesBytes - 1}) {
    bytes[written] = std::byte{2};
    const std::size_t page = written / kPage * kPage;
    EXPECT_TRUE(has_own_pages(bytes)) << written;
    EXPECT_TRUE(has_own_pages(bytes.subspan(page, kPage))) << written;
    EXPECT_TRUE(has_own_pages(bytes.subspan(page, 1))) << written;
    ASSERT_EQ(::madvise(bytes.data() + page, kPage, MADV_DONTNEED), 0);
    EXPECT_FALSE(has_own_pages(bytes)) << "what was written has gone";
    EXPECT_EQ(bytes[written], std::byte{1});
  }
}

}  // namespace
}  // namespace reverie
