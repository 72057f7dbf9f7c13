#include "reverie/tensor/batch_memory.h"

#include <cstring>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(BatchMemory, ReturnedMemoryIsReused) {
  auto memory = BatchMemory::make(2);
  Buffer first = memory->allocate(10'000).value();
  std::byte* const data = first.data();
  Buffer other = memory->allocate(10'000).value();
  EXPECT_NE(other.data(), data);
  first = Buffer();
  EXPECT_EQ(memory->allocate(10'000).value().data(), data);
  EXPECT_EQ(memory->allocate(0).value().size_bytes(), 0u);
  memory.reset();
  std::memset(other.data(), 1, other.size_bytes());  // buffers may outlive the BatchMemory
}

TEST(BatchMemory, UnusedMemoryIsReplaced) {
  const auto memory = BatchMemory::make(2);
  for (const std::size_t size : {100, 200}) Buffer(memory->allocate(size).value());
  std::byte* data = nullptr;
  {
    const Buffer large = memory->allocate(1 << 20).value();
    data = const_cast<std::byte*>(large.data());
  }
  EXPECT_EQ(memory->allocate(1 << 20).value().data(), data);
}

TEST(BatchMemory, ThreadsNeverShareABuffer) {
  auto memory = BatchMemory::make(4);
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([memory, i] {
      for (int turn = 0; turn < 2'000; ++turn) {
        Buffer buffer = memory->allocate(64).value();
        std::memset(buffer.data(), i, 64);
        for (const std::byte value : buffer.bytes()) ASSERT_EQ(value, static_cast<std::byte>(i));
      }
    });
  }
  memory.reset();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace reverie
