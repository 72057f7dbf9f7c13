#include "reverie/env/batcher_fill.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>

namespace reverie {
namespace {

std::size_t product(std::span<const std::int64_t> extents) {
  return static_cast<std::size_t>(
      std::accumulate(extents.begin(), extents.end(), std::int64_t{1}, std::multiplies<>()));
}

std::string column_name(const TensorSpec& spec) {
  return spec.name.empty() ? "the array" : format("column '{}'", spec.name);
}

}  // namespace

Result<FillColumn> fill_column(FillMode mode, const TensorSpec& item, std::size_t size,
                               std::size_t dim) {
  const bool stacks = mode == FillMode::kStack;
  if (item.shape.size() + (stacks ? 1 : 0) <= dim) {
    return invalid_argument("{} has shape {}; to {} along dim {} it needs at least {} dimensions",
                            column_name(item), shape_text(item.shape), stacks ? "stack" : "cat",
                            dim, stacks ? dim : dim + 1);
  }
  FillColumn column;
  column.item = item;
  column.dim = dim;
  column.batch_shape = item.shape;
  const std::span<const std::int64_t> shape(item.shape);
  column.outer_count = product(shape.first(dim));
  column.row_bytes = product(shape.subspan(stacks ? dim : dim + 1)) * dtype_size_bytes(item.dtype);
  if (stacks) {
    column.batch_shape.insert(column.batch_shape.begin() + static_cast<std::ptrdiff_t>(dim),
                              static_cast<std::int64_t>(size));
  } else {
    column.batch_shape[dim] = static_cast<std::int64_t>(size);
  }
  return column;
}

Result<std::size_t> item_rows(FillMode mode, const FillColumn& column,
                              std::span<const std::int64_t> shape) {
  const Shape& first = column.item.shape;
  bool is_alike = shape.size() == first.size();
  for (std::size_t i = 0; is_alike && i < shape.size(); ++i) {
    is_alike = shape[i] == first[i] || (mode == FillMode::kCat && i == column.dim);
  }
  if (!is_alike) {
    Shape wanted = first;
    if (mode == FillMode::kCat) wanted[column.dim] = -1;
    return invalid_argument("{} has shape {}; the first item of the batch makes it {}",
                            column_name(column.item), shape_text(shape), shape_text(wanted));
  }
  return mode == FillMode::kStack ? std::size_t{1} : static_cast<std::size_t>(shape[column.dim]);
}

void copy_fill(const FillColumn& column, const std::byte* item, std::size_t item_rows,
               std::size_t item_begin, std::byte* batch, std::size_t batch_rows,
               std::size_t batch_begin, std::size_t count) {
  const std::size_t row = column.row_bytes;
  if (row * count == 0) return;
  const std::byte* from = item + item_begin * row;
  std::byte* to = batch + batch_begin * row;
  for (std::size_t outer = 0; outer < column.outer_count; ++outer) {
    std::memcpy(to, from, count * row);
    from += item_rows * row;
    to += batch_rows * row;
  }
}

}  // namespace reverie
