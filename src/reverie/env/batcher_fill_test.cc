#include "reverie/env/batcher_fill.h"

#include <cstring>
#include <numeric>
#include <set>

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie {
namespace {

TensorSpec spec_of(Shape shape) {
  return {"x", DType::kInt32, std::move(shape)};
}

std::vector<std::int32_t> numbers(std::size_t count, std::int32_t begin) {
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), begin);
  return values;
}

// Element [i, j, k] of a row-major array.
std::int32_t at(const std::vector<std::int32_t>& values, const Shape& shape, std::int64_t i,
                std::int64_t j, std::int64_t k) {
  return values[static_cast<std::size_t>((i * shape[1] + j) * shape[2] + k)];
}

TEST(BatcherFill, StackingPutsEachItemAtItsIndexOfTheNewDimension) {
  for (std::size_t dim = 0; dim <= 2; ++dim) {
    const FillColumn column =
        fill_column(FillMode::kStack, spec_of({2, 3}), /*size=*/4, dim).value();
    std::vector<std::int32_t> batch(24, -1);
    for (std::int32_t i = 0; i < 4; ++i) {
      const std::vector<std::int32_t> item = numbers(6, 100 * i);
      copy_fill(column, reinterpret_cast<const std::byte*>(item.data()), 1, 0,
                reinterpret_cast<std::byte*>(batch.data()), 4, static_cast<std::size_t>(i), 1);
    }
    EXPECT_EQ(column.size_bytes(), 24 * sizeof(std::int32_t));
    for (std::int64_t i = 0; i < 4; ++i) {
      for (std::int64_t a = 0; a < 2; ++a) {
        for (std::int64_t b = 0; b < 3; ++b) {
          const std::int64_t index[] = {dim == 0 ? i : a,
                                        dim == 0   ? a
                                        : dim == 1 ? i
                                                   : b,
                                        dim == 2 ? i : b};
          EXPECT_EQ(at(batch, column.batch_shape, index[0], index[1], index[2]),
                    100 * i + 3 * a + b);
        }
      }
    }
  }
}

TEST(BatcherFill, ConcatenatingSplitsAnItemAtTheEndOfTheBatch) {
  const FillColumn column = fill_column(FillMode::kCat, spec_of({2, 5, 3}), 4, 1).value();
  EXPECT_EQ(column.batch_shape, (Shape{2, 4, 3}));
  EXPECT_EQ(item_rows(FillMode::kCat, column, Shape{2, 9, 3}).value(), 9u);
  const std::vector<std::int32_t> item = numbers(30, 0);
  std::vector<std::int32_t> batch(24, -1);
  // Copies rows 2 to 4 of 5 to rows 1 to 3 of 4.
  copy_fill(column, reinterpret_cast<const std::byte*>(item.data()), 5, 2,
            reinterpret_cast<std::byte*>(batch.data()), 4, 1, 3);
  for (std::int64_t a = 0; a < 2; ++a) {
    for (std::int64_t row = 0; row < 3; ++row) {
      for (std::int64_t b = 0; b < 3; ++b) {
        EXPECT_EQ(at(batch, {2, 4, 3}, a, 1 + row, b), at(item, {2, 5, 3}, a, 2 + row, b));
      }
    }
    EXPECT_EQ(at(batch, {2, 4, 3}, a, 0, 0), -1);
  }
}

TEST(BatcherFill, RefusesItemsOfUnsuitableShapes) {
  expect_refused(fill_column(FillMode::kStack, spec_of({2}), 4, 2).status(),
                 StatusCode::kInvalidArgument, {"'x'", "(2,)", "stack along dim 2"});
  expect_refused(fill_column(FillMode::kCat, spec_of({}), 4, 0).status(),
                 StatusCode::kInvalidArgument, {"()", "cat along dim 0"});
  const FillColumn column = fill_column(FillMode::kCat, spec_of({2, 5}), 4, 1).value();
  expect_refused(item_rows(FillMode::kCat, column, Shape{3, 5}).status(),
                 StatusCode::kInvalidArgument, {"(3, 5)", "(2, ?)"});
  expect_refused(item_rows(FillMode::kCat, column, Shape{2}).status(), StatusCode::kInvalidArgument,
                 {"(2,)"});
}

}  // namespace
}  // namespace reverie
