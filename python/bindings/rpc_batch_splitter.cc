#include "python/bindings/rpc_batch_splitter.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_batch_nests.h"
#include "python/bindings/rpc_values.h"

namespace reverie::python {
namespace {

// Rows of at least this size are sent in place; copying smaller ones costs less than keeping them.
constexpr std::size_t kLentRowMin = std::size_t{64} << 10;

}  // namespace

void RpcBatchSplitter::read(PyObject* nest, std::size_t depth) {
  if (depth >= kValueDepthMax) {
    raise(
        invalid_argument("the answer is nested more than {} deep; flatten it, or send it in parts",
                         kValueDepthMax - 1));
  }
  if (PyDict_Check(nest)) {
    const nb::object items = owned(PyDict_Items(nest));
    const Py_ssize_t count = PyList_GET_SIZE(items.ptr());
    begin(ValueKind::kDict, static_cast<std::size_t>(count), {});
    for (Py_ssize_t i = 0; i < count; ++i) {
      PyObject* const pair = PyList_GET_ITEM(items.ptr(), i);
      add(Part::Kind::kValue, nb::borrow(PyTuple_GET_ITEM(pair, 0)), depth + 1);
      read(PyTuple_GET_ITEM(pair, 1), depth + 1);
    }
    return;
  }
  if (PyList_Check(nest) || PyTuple_Check(nest)) return read_sequence(nest, depth);
  const std::optional<std::size_t> rows = row_count(nest);
  if (!rows) return add(Part::Kind::kValue, nb::borrow(nest), depth);
  if (!read_array(nest, depth)) add(Part::Kind::kIndexed, nb::borrow(nest), depth);
}

void RpcBatchSplitter::write(Payload& payload, std::size_t begin, std::size_t rows,
                             std::size_t index) {
  ValueWriter writer(payload);
  for (const Part& part : parts_) {
    switch (part.kind) {
      case Part::Kind::kBegin:
        part.names.empty() ? writer.begin(part.container, part.count)
                           : writer.begin_named_tuple(part.names, part.count);
        break;
      case Part::Kind::kValue:
        encode(payload, part.value, part.depth, index);
        break;
      case Part::Kind::kEntry:
        encode(payload,
               nb::borrow(PyTuple_GET_ITEM(part.value.ptr(), static_cast<Py_ssize_t>(index))),
               part.depth, index);
        break;
      case Part::Kind::kIndexed:
        encode(payload, rows_of(part.value, begin, rows), part.depth, index, part.is_copy);
        break;
      case Part::Kind::kRows:
        if (part.on_device.is_valid() && senders_[index].is_ready(part.device)) {
          encode(payload, rows_of(part.on_device, begin, rows), part.depth, index,
                 /*is_copy=*/true);
        } else {
          write_rows(writer, part, begin, rows);
        }
        break;
    }
  }
}

nb::object RpcBatchSplitter::rows_of(const nb::object& array, std::size_t begin,
                                     std::size_t rows) const {
  if (!options_.is_cat) return array[nb::int_(begin)];
  return array[nb::slice(nb::int_(begin), nb::int_(begin + rows), nb::none())];
}

void RpcBatchSplitter::begin(ValueKind kind, std::size_t count, std::string names) {
  Part& part = parts_.emplace_back();
  part.kind = Part::Kind::kBegin;
  part.container = kind;
  part.count = count;
  part.names = std::move(names);
}

void RpcBatchSplitter::add(Part::Kind kind, nb::object value, std::size_t depth) {
  Part& part = parts_.emplace_back();
  part.kind = kind;
  part.value = std::move(value);
  part.depth = depth;
}

void RpcBatchSplitter::read_sequence(PyObject* nest, std::size_t depth) {
  const bool is_tuple = PyTuple_Check(nest);
  // A copy: Python code may run, and change a list.
  nb::object items = owned(PySequence_Tuple(nest));
  const auto count = static_cast<std::size_t>(PyTuple_GET_SIZE(items.ptr()));
  const bool is_dealt_out = options_.leaves != BatchLeaves::kFirst &&
                            (options_.leaves == BatchLeaves::kStack || is_tuple) &&
                            !has_array(nest, depth);
  if (is_dealt_out) {
    // Without `cat` a call is a row, and entries of the padding may follow.
    if (count == call_count_ || (!options_.is_cat && count == rows_)) {
      return add(Part::Kind::kEntry, std::move(items), depth);
    }
    if (depth == 0 || count > call_count_) {
      raise(invalid_argument(
          "the function of a batch of {} calls gave {} values; each caller must get one",
          call_count_, count));
    }
  }
  begin(is_tuple ? ValueKind::kTuple : ValueKind::kList, count, names_of_tuple(nest));
  for (std::size_t i = 0; i < count; ++i) {
    read(PyTuple_GET_ITEM(items.ptr(), static_cast<Py_ssize_t>(i)), depth + 1);
  }
}

bool RpcBatchSplitter::read_array(PyObject* array, std::size_t depth) {
  const bool is_numpy = PyArray_Check(array);
  if (is_numpy && !dtype_of(PyArray_DESCR(reinterpret_cast<PyArrayObject*>(array)))) return false;
  Part part;
  part.kind = Part::Kind::kRows;
  part.value = nb::borrow(array);
  part.view = reader_.read(array, "the answer");
  if (part.view.framework == Framework::kNone) return false;
  if (!part.view.is_on_cpu) {
    // Copied once for each kind of caller: within its device, and to the CPU.
    part.device = cuda_device_of(array);
    const auto is_ready = [&](DeviceSender& sender) { return sender.is_ready(part.device); };
    const auto ready = std::ranges::count_if(senders_, is_ready);
    if (ready > 0) part.on_device = part.value.attr("detach")().attr("clone")();
    if (static_cast<std::size_t>(ready) == call_count_) {
      add(Part::Kind::kIndexed, std::move(part.on_device), depth);
      parts_.back().is_copy = true;
      return true;
    }
    part.value = host_copy(array);
    part.view = reader_.read(part.value.ptr(), "the answer");
  }
  if (part.view.data == nullptr || part.view.shape.empty()) return false;
  part.row_bytes = static_cast<std::size_t>(element_count(part.view.shape.subspan(1))) *
                   dtype_size_bytes(part.view.dtype);
  if (part.view.keep.is_valid()) part.value = part.view.keep;
  parts_.push_back(std::move(part));
  return true;
}

void RpcBatchSplitter::write_rows(ValueWriter& writer, const Part& part, std::size_t begin,
                                  std::size_t rows) {
  const LeafView& view = part.view;
  const std::size_t size = rows * part.row_bytes;
  const std::span<const std::byte> bytes(view.data + begin * part.row_bytes, size);
  Shape shape;
  if (options_.is_cat) shape.push_back(static_cast<std::int64_t>(rows));
  for (const std::int64_t extent : view.shape.subspan(1)) shape.push_back(extent);
  // Like the result of indexing.
  if (view.framework == Framework::kNumpy && shape.empty()) {
    return writer.scalar(view.dtype, bytes);
  }
  const TensorMaker maker = tensor_maker_of(view.framework);
  if (size == 0) {
    writer.lent_tensor(view.dtype, shape, {}, maker, nullptr);
  } else if (size >= kLentRowMin) {
    writer.lent_tensor(view.dtype, shape, bytes, maker, lend_array(part.value),
                       /*may_change=*/true);
  } else {
    writer.tensor(view.dtype, shape, bytes, maker);
  }
}

void RpcBatchSplitter::encode(Payload& payload, const nb::object& value, std::size_t depth,
                              std::size_t index, bool is_copy) {
  senders_[index].set_unchanged(is_copy);
  ValueEncoder(payload, reader_, /*lends=*/true, pickle_, &senders_[index])
      .encode(value, "the answer", depth);
}

}  // namespace reverie::python
