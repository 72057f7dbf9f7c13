// How the batcher begins a batch: the first item determines its arrays.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/batcher.h"
#include "python/bindings/convert.h"
#include "python/bindings/dlpack_exchange.h"

namespace reverie::python {
namespace {

// Never released: the interpreter may be gone when the library's statics are destroyed. Guarded by
// its lock, not by a static's: an import releases the interpreter's.
PyObject* torch_module = nullptr;
PyObject* torch_from_numpy = nullptr;

nb::handle torch() {
  if (torch_module == nullptr) torch_module = nb::module_::import_("torch").release().ptr();
  return torch_module;
}
nb::handle from_numpy() {
  if (torch_from_numpy == nullptr) {
    torch_from_numpy = nb::object(torch().attr("from_numpy")).release().ptr();
  }
  return torch_from_numpy;
}

// NumPy's type for the bits of a torch type that NumPy lacks.
DType bits_of(DType dtype) {
  if (dtype < DType::kBFloat16) return dtype;
  return dtype_size_bytes(dtype) == 2 ? DType::kUInt16 : DType::kUInt8;
}

nb::object torch_dtype(DType dtype) {
  return torch().attr(std::string(dtype_name(dtype)).c_str());
}

}  // namespace

void Batcher::make_target(Column& column, const LeafView& first) {
  const bool is_torch = column.framework == Framework::kTorch;
  const FillColumn& fill = column.fill;
  const bool goes_to_device = is_torch && !options_.device.is_none();
  if ((is_torch && !first.is_on_cpu) || goes_to_device) {
    nb::list shape;
    for (const std::int64_t extent : fill.batch_shape) shape.append(extent);
    const nb::object dtype = torch_dtype(fill.item.dtype);
    if (first.is_on_cpu) {  // gathered in pinned memory, so that the copy is asynchronous
      column.target =
          torch().attr("empty")(shape, nb::arg("dtype") = dtype, nb::arg("pin_memory") = true);
      column.data =
          reinterpret_cast<std::byte*>(nb::cast<std::uintptr_t>(column.target.attr("data_ptr")()));
    } else {
      column.target =
          torch().attr("empty")(shape, nb::arg("dtype") = dtype, nb::arg("device") = first.keep);
    }
    return;
  }
  Buffer buffer = unwrap(memory_->allocate(fill.size_bytes()));
  if (is_torch && buffer.size_bytes() > 0) {
    const ExchangeTable* const table = torch_tensors().table;
    const std::optional<nb::dlpack::dtype> exchanged = dlpack_dtype(fill.item.dtype);
    if (table != nullptr && exchanged) {
      column.data = buffer.data();
      column.target = tensor_from_buffer(*table, *exchanged, fill.batch_shape, std::move(buffer));
      return;
    }
  }
  const DType dtype = is_torch ? bits_of(fill.item.dtype) : fill.item.dtype;
  nb::object array = array_from_buffer(dtype, fill.batch_shape, std::move(buffer));
  column.data = array_data(array);
  if (!is_torch) {
    column.target = std::move(array);
    return;
  }
  column.target = from_numpy()(array);
  if (dtype != fill.item.dtype) {
    column.target = column.target.attr("view")(torch_dtype(fill.item.dtype));
  }
}

std::shared_ptr<Batcher::Open> Batcher::open(FillMode mode, std::size_t structure,
                                             std::vector<Source>& sources) {
  const std::vector<std::string>& paths = structures_[structure - 1].paths;
  std::shared_ptr<Open> made = spent(mode, structure, sources);
  const bool is_new = made == nullptr;
  if (is_new) {
    made = std::make_shared<Open>();
    made->mode = mode;
    made->structure = structure;
    made->columns.resize(sources.size());
  }
  bool has_array = false;
  std::size_t row_bytes = 0;
  bool is_ours = true;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    LeafView& view = sources[i].view;
    Column& column = made->columns[i];
    if (view.framework == Framework::kNone) {
      column.target = nb::borrow(sources[i].leaf);
      continue;
    }
    has_array = true;
    if (is_new) {
      column.framework = options_.output == Framework::kNone ? view.framework : options_.output;
      const TensorSpec item{paths[i], view.dtype, Shape(view.shape.begin(), view.shape.end())};
      column.fill = unwrap(fill_column(mode, item, options_.size, options_.dim));
      column.layout = LeafLayout::of(view.dtype, view.shape);
    }
    if (!view.is_on_cpu) view.keep = nb::borrow(sources[i].leaf).attr("device");
    make_target(column, view);
    if (view.framework == Framework::kTorch) torch_tensors();  // add_alike() looks for them
    is_ours = is_ours && column.data != nullptr;
    row_bytes += column.fill.outer_count * column.fill.row_bytes;
  }
  made->is_ours = is_ours;
  made->is_plain = mode == FillMode::kStack && is_ours && row_bytes < kLargeBytes;
  if (!has_array) raise(invalid_argument("the item has no array; there is nothing to batch"));
  return made;
}

std::shared_ptr<Batcher::Open> Batcher::spent(FillMode mode, std::size_t structure,
                                              const std::vector<Source>& sources) {
  std::shared_ptr<Open> last = std::move(spent_);
  if (!last || last->mode != mode || last->structure != structure) return nullptr;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const LeafView& view = sources[i].view;
    const Column& column = last->columns[i];
    const bool is_array = view.framework != Framework::kNone;
    if (is_array != (column.framework != Framework::kNone)) return nullptr;
    if (!is_array) continue;
    const bool is_alike =
        (options_.output != Framework::kNone || view.framework == column.framework) &&
        view.dtype == column.layout.dtype && std::ranges::equal(view.shape, column.layout.shape);
    if (!is_alike) return nullptr;
  }
  last->filled = 0;
  return last;
}

}  // namespace reverie::python
