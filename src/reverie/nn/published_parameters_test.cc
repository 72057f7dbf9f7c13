#include "reverie/nn/published_parameters.h"

#include <atomic>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/scale.h"

namespace reverie::nn {
namespace {

constexpr std::size_t kFloats = 3'000;

Parameters all_of(float value) {
  Parameters parameters(kFloats);
  parameters.fill(value);
  return parameters;
}

TEST(PublishedParameters, AReaderGetsTheLatestVersion) {
  PublishedParameters board(all_of(10), 1);
  EXPECT_EQ(board.acquire(0).version, 0u);
  EXPECT_EQ(board.publish(all_of(11)), 1u);
  EXPECT_EQ(board.version(), 1u);
  const PublishedParameters::Version version = board.acquire(0);
  EXPECT_EQ(version.version, 1u);
  EXPECT_EQ(version.parameters->data()[0], 11.0f);
}

TEST(PublishedParameters, AHeldVersionIsUnchangedHoweverManyFollow) {
  PublishedParameters board(all_of(0), 3);
  const PublishedParameters::Version first = board.acquire(0);
  board.publish(all_of(1));
  const PublishedParameters::Version second = board.acquire(1);
  for (int i = 2; i < 50; ++i) board.publish(all_of(static_cast<float>(i)));
  for (std::size_t i = 0; i < kFloats; ++i) {
    ASSERT_EQ(first.parameters->data()[i], 0.0f);
    ASSERT_EQ(second.parameters->data()[i], 1.0f);
  }
  EXPECT_EQ(board.acquire(2).version, 49u);
}

// Every float of a version equals its number, so that a torn version is noticed.
TEST(PublishedParameters, ReadersNeverSeeATornOrAnOlderVersion) {
  constexpr std::size_t kReaders = 3;
  const auto publish_count = static_cast<std::uint64_t>(scaled(3'000, 100'000));
  PublishedParameters board(all_of(0), kReaders);
  std::atomic<std::uint64_t> torn{0};
  std::vector<std::thread> readers;
  for (std::size_t reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&, reader] {
      std::uint64_t last = 0;
      while (last < publish_count) {
        const PublishedParameters::Version version = board.acquire(reader);
        if (version.version < last) ++torn;
        last = version.version;
        const auto expected = static_cast<float>(last);
        for (const float value : version.parameters->span()) torn += value != expected ? 1u : 0u;
        if (last % 2 == 0) board.release(reader);
      }
    });
  }
  for (std::uint64_t i = 1; i <= publish_count; ++i) board.publish(all_of(static_cast<float>(i)));
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn.load(), 0u);
}

}  // namespace
}  // namespace reverie::nn
