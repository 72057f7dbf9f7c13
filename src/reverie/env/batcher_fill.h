// How items form a batch: where the rows of each item go along one dimension.
//
//     stack, dim 0    item [a, b]    --> batch [size, a, b]    slot i
//     stack, dim 1    item [a, b]    --> batch [a, size, b]
//     cat,   dim 1    item [a, n, b] --> batch [a, size, b]    n rows, the rest to the next batch
//
// Pure functions: shapes, counts and one copy. Memory and waits are handled elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

enum class FillMode : std::uint8_t { kStack, kCat };

// One column of a batch.
struct FillColumn {
  TensorSpec item;  // of the first item; with kCat any extent along the dimension
  Shape batch_shape;
  std::size_t outer_count = 1;  // runs of rows, one per index of the preceding dimensions
  std::size_t row_bytes = 0;    // per index along the dimension
  std::size_t size_bytes() const {
    std::size_t rows = row_bytes;
    for (std::size_t i = 0; i <= dim; ++i) rows *= static_cast<std::size_t>(batch_shape[i]);
    return rows;
  }
  std::size_t dim = 0;
};

// The column for items like `item`. INVALID_ARGUMENT if it has too few dimensions for
// `dim`.
Result<FillColumn> fill_column(FillMode mode, const TensorSpec& item, std::size_t size,
                               std::size_t dim);

// The number of rows of an item along `dim`: 1 if stacked. INVALID_ARGUMENT, naming the column and
// both shapes, if it does not match the first item.
Result<std::size_t> item_rows(FillMode mode, const FillColumn& column,
                              std::span<const std::int64_t> shape);

// Copies `count` rows of an item, from `item_begin` of its `item_rows`, to `batch_begin` of the
// batch's `batch_rows`.
void copy_fill(const FillColumn& column, const std::byte* item, std::size_t item_rows,
               std::size_t item_begin, std::byte* batch, std::size_t batch_rows,
               std::size_t batch_begin, std::size_t count);

}  // namespace reverie
