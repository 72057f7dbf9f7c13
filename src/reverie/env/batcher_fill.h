// How items become a batch: where the rows of each lie along one dimension of the whole.
//
//     stack, dim 0    item [a, b]    --> batch [size, a, b]    slot i
//     stack, dim 1    item [a, b]    --> batch [a, size, b]
//     cat,   dim 1    item [a, n, b] --> batch [a, size, b]    n rows, the rest to the next batch
//
// Pure: shapes, counts and one copy. Memory and waits are handled elsewhere.
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
  TensorSpec item;  // of the first item; in kCat its extent along the dimension is any
  Shape batch_shape;
  std::size_t outer_count = 1;  // runs of rows, one for each index of the dimensions in front
  std::size_t row_bytes = 0;    // of one step along the dimension
  std::size_t size_bytes() const {
    std::size_t rows = row_bytes;
    for (std::size_t i = 0; i <= dim; ++i) rows *= static_cast<std::size_t>(batch_shape[i]);
    return rows;
  }
  std::size_t dim = 0;
};

// The column that items like `item` fill. INVALID_ARGUMENT where it has too few dimensions for
// `dim`.
Result<FillColumn> fill_column(FillMode mode, const TensorSpec& item, std::size_t size,
                               std::size_t dim);

// The rows that an item brings along `dim`: 1 when stacked. INVALID_ARGUMENT, naming the column and
// both shapes, where it is not like the first.
Result<std::size_t> item_rows(FillMode mode, const FillColumn& column,
                              std::span<const std::int64_t> shape);

// Copies `count` rows of an item, from `item_begin` of its `item_rows`, to `batch_begin` of the
// batch's `batch_rows`.
void copy_fill(const FillColumn& column, const std::byte* item, std::size_t item_rows,
               std::size_t item_begin, std::byte* batch, std::size_t batch_rows,
               std::size_t batch_begin, std::size_t count);

}  // namespace reverie
