#include "reverie/sum_tree/segmented_array.h"

#include <atomic>
#include <memory>
#include <new>
#include <thread>

#include <gtest/gtest.h>

namespace reverie {
namespace {

std::atomic<bool> is_memory_short{false};

// A number whose copies need memory.
struct Number {
  int value = 0;

  Number() = default;
  Number(int number) : value(number) {}
  Number(const Number&) = default;
  Number& operator=(const Number& other) {
    if (is_memory_short) throw std::bad_alloc();
    value = other.value;
    return *this;
  }
};

using Numbers = SegmentedArray<Number, 4>;

TEST(SegmentedArray, AFrozenArrayIsReadAsItWas) {
  SegmentedArray<int, 4> numbers;
  numbers.reach(11, 1);
  const auto frozen = numbers.freeze();
  numbers.write(5) = 2;
  numbers.reach(12, 3);
  numbers.write(12) = 4;
  EXPECT_TRUE(frozen->read([&] {
    for (std::size_t i = 0; i < 12; ++i) EXPECT_EQ((*frozen)[i], 1);
  }));
  EXPECT_EQ(numbers[5], 2);
  EXPECT_EQ(numbers[12], 4);
}

TEST(SegmentedArray, WithoutMemoryForACopyTheReaderLosesTheContents) {
  Numbers numbers;
  numbers.reach(7, 1);
  const auto frozen = numbers.freeze();
  numbers.write(0).value = 2;
  is_memory_short = true;
  numbers.write(1).value = 3;  // its segment was copied before
  EXPECT_TRUE(frozen->read([] {}));
  numbers.write(4).value = 4;
  is_memory_short = false;
  EXPECT_FALSE(frozen->read([] { FAIL(); }));
  EXPECT_EQ(numbers[0].value, 2);
  EXPECT_EQ(numbers[1].value, 3);
  EXPECT_EQ(numbers[4].value, 4);

  const auto second = numbers.freeze();
  numbers.write(4).value = 5;
  EXPECT_TRUE(second->read([&] { EXPECT_EQ((*second)[4].value, 4); }));
}

TEST(SegmentedArray, AReaderInsideIsNotDisturbed) {
  Numbers numbers;
  numbers.reach(7, 1);
  const auto frozen = numbers.freeze();
  std::atomic<bool> is_inside{false};
  std::thread reader([&] {
    const bool was_read = frozen->read([&] {
      is_inside = true;
      is_inside.notify_one();
      for (int round = 0; round < 10'000; ++round) {
        for (std::size_t i = 0; i < 8; ++i) ASSERT_EQ((*frozen)[i].value, 1);
      }
    });
    EXPECT_TRUE(was_read);
  });
  is_inside.wait(false);
  is_memory_short = true;
  numbers.write(6).value = 2;
  is_memory_short = false;
  reader.join();
  EXPECT_FALSE(frozen->read([] {}));
}

}  // namespace
}  // namespace reverie
