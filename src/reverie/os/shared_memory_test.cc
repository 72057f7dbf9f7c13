#include "reverie/os/shared_memory.h"

#include <cstring>
#include <span>
#include <utility>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace reverie {
namespace {

TEST(SharedMemory, OneMappingReadsWhatAnotherWrites) {
  SharedMemory made = SharedMemory::create("test", 10'000).value();
  SharedMemory opened = SharedMemory::open(made.fd()).value();
  ASSERT_EQ(opened.bytes().size(), 10'000u);
  ASSERT_NE(opened.bytes().data(), made.bytes().data());
  EXPECT_EQ(made.bytes()[9'999], std::byte{0});
  std::memset(made.bytes().data(), 7, 10'000);
  EXPECT_EQ(opened.bytes()[9'999], std::byte{7});
}

TEST(SharedMemory, MovingTheObjectDoesNotMoveTheBytes) {
  SharedMemory made = SharedMemory::create("test", 100).value();
  std::byte* const at = made.bytes().data();
  SharedMemory moved = std::move(made);
  EXPECT_EQ(moved.bytes().data(), at);
  moved = SharedMemory::create("other", 200).value();
  EXPECT_EQ(moved.bytes().size(), 200u);
}

TEST(SharedMemory, CannotBeShrunk) {
  const SharedMemory made = SharedMemory::create("test", 10'000).value();
  EXPECT_NE(ftruncate(made.fd(), 10), 0);
}

TEST(SharedMemory, CanBeOpenedByProcessIdAndMappedCopyOnWrite) {
  const SharedMemory made = SharedMemory::create("test", 10'000).value();
  const auto word = std::as_bytes(std::span("there"));
  ASSERT_TRUE(made.write(9'000, word).ok());
  const SharedMemory shared = SharedMemory::open_of(getpid(), made.fd()).value();
  const SharedMemory own =
      SharedMemory::open_of(getpid(), made.fd(), SharedMemory::Mapping::kCopyOnWrite).value();
  EXPECT_EQ(std::memcmp(own.bytes().data() + 9'000, word.data(), word.size()), 0);
  own.bytes()[9'000] = std::byte{1};
  EXPECT_EQ(shared.bytes()[9'000], word[0]);
  shared.bytes()[0] = std::byte{2};
  EXPECT_EQ(own.bytes()[0], std::byte{2});  // this page has not been copied yet

  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(SharedMemory::open_of(getpid(), file).status().code(), StatusCode::kUnavailable);
  close(file);
  EXPECT_EQ(SharedMemory::open_of(getpid(), file).status().code(), StatusCode::kUnavailable);
}

TEST(SharedMemory, IsReservedOnlyWhileNoReaderHoldsIt) {
  const SharedMemory made = SharedMemory::create("test", 100).value();
  EXPECT_TRUE(made.try_reserve());
  {
    const SharedMemory reader = SharedMemory::open_of(getpid(), made.fd()).value();
    EXPECT_FALSE(reader.try_hold());  // it is reserved
    made.end_reservation();
    EXPECT_TRUE(reader.try_hold());
    const SharedMemory second = SharedMemory::open_of(getpid(), made.fd()).value();
    EXPECT_TRUE(second.try_hold());
    EXPECT_FALSE(made.try_reserve());
  }
  EXPECT_TRUE(made.try_reserve());
}

TEST(SharedMemory, RefusesInvalidSizesAndDescriptors) {
  EXPECT_EQ(SharedMemory::create("test", 0).status().code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(SharedMemory::create("test", std::size_t{1} << 62).status().code(),
            StatusCode::kResourceExhausted);
  EXPECT_EQ(SharedMemory::open(-1).status().code(), StatusCode::kInvalidArgument);
  const int file = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_EQ(SharedMemory::open(file).status().code(), StatusCode::kInvalidArgument);
  close(file);
}

}  // namespace
}  // namespace reverie
