#include "python/bindings/batcher.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/gil.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Batches whose memory is kept for reuse: one being filled, one being used, one in
// between.
constexpr std::size_t kKeptColumns = 64;

bool is_of_type(PyObject* object, const nb::object& type) {
  return reinterpret_cast<PyObject*>(Py_TYPE(object)) == type.ptr();
}

nb::object narrowed(const nb::object& array, Framework framework, std::size_t dim,
                    std::size_t begin, std::size_t count) {
  if (framework == Framework::kTorch) return array.attr("narrow")(dim, begin, count);
  nb::list index;
  for (std::size_t i = 0; i < dim; ++i) index.append(nb::slice(nb::none(), nb::none(), nb::none()));
  index.append(nb::slice(nb::int_(begin), nb::int_(begin + count), nb::none()));
  return array[nb::tuple(index)];
}

// The view's values as `dtype`, if NumPy considers it the same kind.
LeafView converted(const LeafView& view, const TensorSpec& wanted) {
  const nb::object from = new_array(view.dtype, view.shape);
  const std::size_t bytes =
      static_cast<std::size_t>(element_count(view.shape)) * dtype_size_bytes(view.dtype);
  std::memcpy(array_data(from), view.data, bytes);
  const nb::object dtype = numpy_dtype(wanted.dtype);
  auto* const descr = reinterpret_cast<PyArray_Descr*>(dtype.ptr());
  auto* const array = reinterpret_cast<PyArrayObject*>(from.ptr());
  if (!PyArray_CanCastTypeTo(PyArray_DESCR(array), descr, NPY_SAME_KIND_CASTING)) {
    raise_type_error(format("{} has dtype {}; the first item of the batch makes it {}",
                            column_text(wanted.name), dtype_name(view.dtype),
                            dtype_name(wanted.dtype)));
  }
  Py_INCREF(reinterpret_cast<PyObject*>(descr));
  LeafView made = view;
  made.keep = owned(PyArray_FromArray(array, descr, NPY_ARRAY_CARRAY_RO | NPY_ARRAY_FORCECAST));
  made.dtype = wanted.dtype;
  made.data = array_data(made.keep);
  auto* const plain = reinterpret_cast<PyArrayObject*>(made.keep.ptr());
  made.shape = {PyArray_DIMS(plain), static_cast<std::size_t>(PyArray_NDIM(plain))};
  return made;
}

}  // namespace

Batcher::Batcher(Options options)
    : options_(std::move(options)),
      finished_(options_.queue_size),
      memory_(BatchMemory::make(kKeptColumns)) {}

void Batcher::check_here() const {
  unwrap(fork_guard_.check("batcher"));
}

std::size_t Batcher::finished_count() const {
  check_here();
  return finished_.size();
}

std::size_t Batcher::filled() const {
  check_here();
  return open_ ? open_->filled : 0;
}

void Batcher::check_open() const {
  check_here();
  if (is_closed()) raise(cancelled("this batcher is closed"));
}

// A wait checks for signals on its own thread.
bool Batcher::is_interrupted() {
  const GilHeld held;
  return PyErr_CheckSignals() != 0;
}

TimePoint Batcher::own_deadline() const {
  return Clock::system().now() + seconds(options_.timeout_s);
}

std::size_t Batcher::note(const Nest& nest) {
  auto found = std::ranges::find(structures_, nest.text(), &Structure::text);
  if (found == structures_.end()) {
    Structure made;
    made.text = nest.text();
    for (std::size_t i = 0; i < nest.leaf_count(); ++i) {
      made.paths.push_back(nest.path(nest.leaf_of_column(i)));
    }
    found = structures_.insert(structures_.end(), std::move(made));
  }
  found->root = nest.root();
  found->column_of_leaf.resize(nest.leaf_count());
  for (std::size_t i = 0; i < nest.leaf_count(); ++i) {
    found->column_of_leaf[nest.leaf_of_column(i)] = i;
  }
  return static_cast<std::size_t>(found - structures_.begin()) + 1;
}

std::size_t Batcher::read(nb::handle nest, Leaves& leaves, std::vector<Source>& sources) {
  auto& entry = nests_.flatten(nest, leaves);
  // Reading may run Python code, which may change the nest and the notes about it.
  leaves.hold();
  const std::size_t count = entry.nest->leaf_count();
  sources.resize(count);
  for (std::size_t i = 0; i < count; ++i) sources[i].leaf = leaves[entry.nest->leaf_of_column(i)];
  if (entry.note.structure == 0) entry.note.structure = note(*entry.nest);
  const std::size_t structure = entry.note.structure;
  const std::vector<std::string>& paths = structures_[structure - 1].paths;
  for (std::size_t i = 0; i < count; ++i) {
    sources[i].view = reader_.read(sources[i].leaf, paths[i]);
  }
  return structure;
}

bool Batcher::add_alike(PyObject* nest) {
  if (!open_ || !open_->is_plain) return false;
  Open& open = *open_;
  const Structure& structure = structures_[open.structure - 1];
  // An item is copied whole or not at all.
  if (!find_elements(structure, structure.root, nest, open.columns)) return false;
  for (const Column& column : open.columns) {
    if (column.framework == Framework::kNone) continue;
    const std::size_t row_bytes = column.fill.row_bytes;
    if (column.fill.outer_count != 1) {
      copy_fill(column.fill, column.item, 1, 0, column.data, options_.size, open.filled, 1);
    } else if (row_bytes == sizeof(std::int64_t)) {  // a number: two instructions
      std::memcpy(column.data + open.filled * row_bytes, column.item, sizeof(std::int64_t));
    } else {
      std::memcpy(column.data + open.filled * row_bytes, column.item, row_bytes);
    }
  }
  if (++open.filled == options_.size) {
    const std::shared_ptr<Open> full = std::move(open_);
    finish(full);  // short copies keep the interpreter's lock, so all are done
  }
  return true;
}

bool Batcher::find_elements(const Structure& structure, const Nest::Node& node, PyObject* object,
                            std::vector<Column>& columns) {
  const std::size_t count = node.children.size();
  switch (node.kind) {
    case NestKind::kLeaf: {
      Column& column = columns[structure.column_of_leaf[node.leaf]];
      if (column.framework == Framework::kNone) {  // unchanged, and no container now
        return Py_TYPE(object) == Py_TYPE(column.target.ptr());
      }
      column.item = column.layout.elements(object);
      return column.item != nullptr;
    }
    case NestKind::kDict: {
      if (!PyDict_Check(object) || PyDict_GET_SIZE(object) != static_cast<Py_ssize_t>(count)) {
        return false;
      }
      Py_ssize_t position = 0;
      PyObject* key = nullptr;
      PyObject* value = nullptr;
      for (std::size_t i = 0; i < count; ++i) {
        if (PyDict_Next(object, &position, &key, &value) == 0) return false;
        PyObject* const wanted = node.keys[i].ptr();
        if (key != wanted && !is_same_key(key, wanted)) return false;
        if (!find_elements(structure, node.children[i], value, columns)) return false;
      }
      return true;
    }
    case NestKind::kList:
    case NestKind::kTuple:
    case NestKind::kNamedTuple: {
      const bool is_alike = node.kind == NestKind::kList    ? PyList_Check(object) != 0
                            : node.kind == NestKind::kTuple ? PyTuple_CheckExact(object) != 0
                                                            : is_of_type(object, node.type);
      if (!is_alike || PySequence_Fast_GET_SIZE(object) != static_cast<Py_ssize_t>(count)) {
        return false;
      }
      for (std::size_t i = 0; i < count; ++i) {
        PyObject* const item = PySequence_Fast_GET_ITEM(object, static_cast<Py_ssize_t>(i));
        if (!find_elements(structure, node.children[i], item, columns)) return false;
      }
      return true;
    }
    case NestKind::kDataclass:  // its fields may be properties, which are Python code
      return false;
  }
  return false;
}

std::size_t Batcher::check(const Open& open, FillMode mode, std::size_t structure,
                           std::vector<Source>& sources) {
  if (open.mode != mode) {
    raise(invalid_argument(
        "the open batch is made by {}; finish it, or flush(), before it is mixed with {}",
        open.mode == FillMode::kStack ? "stack" : "cat",
        mode == FillMode::kStack ? "stack" : "cat"));
  }
  if (open.structure != structure) {
    raise(invalid_argument("the item has the structure {}; the first of the batch has {}",
                           structures_[structure - 1].text, structures_[open.structure - 1].text));
  }
  std::size_t rows = 0;
  const Column* first = nullptr;
  for (std::size_t i = 0; i < sources.size(); ++i) {
    const Column& column = open.columns[i];
    const LeafView& view = sources[i].view;
    if (column.framework == Framework::kNone) continue;
    if (view.framework == Framework::kNone) {
      raise_type_error(format("{} is a {}; the first item of the batch has an array",
                              column_text(column.fill.item.name), type_name_of(sources[i].leaf)));
    }
    const std::size_t count = unwrap(item_rows(mode, column.fill, view.shape));
    if (first != nullptr && count != rows) {
      raise(invalid_argument("{} has {} rows along dim {}; {} has {}",
                             column_text(column.fill.item.name), count, options_.dim,
                             column_text(first->fill.item.name), rows));
    }
    first = &column;
    rows = count;
    if (column.data == nullptr) {
      if (view.framework == Framework::kTorch) continue;  // torch converts
      raise_type_error(
          format("{} is a {}; the first item of the batch has a tensor on a device, so give a "
                 "torch.Tensor",
                 column_text(column.fill.item.name), type_name_of(sources[i].leaf)));
    }
    sources[i].data = fitted(sources[i], column.fill.item);
  }
  return rows;
}

const std::byte* Batcher::fitted(Source& source, const TensorSpec& wanted) {
  const auto fits = [&](const LeafView& view) {
    return view.framework != Framework::kNone && view.is_on_cpu && view.dtype == wanted.dtype;
  };
  if (fits(source.view)) return source.view.data;
  if (fits(source.fitted)) return source.fitted.data;
  LeafView near = source.view;
  if (!near.is_on_cpu) {
    nb::object copied = nb::borrow(source.leaf).attr("detach")().attr("cpu")();
    LeafView read = reader_.read(copied.ptr(), "");
    near.data = read.data;
    near.keep = read.keep.is_valid() ? std::move(read.keep) : std::move(copied);
    near.is_on_cpu = true;
  }
  source.fitted = near.dtype == wanted.dtype ? std::move(near) : converted(near, wanted);
  return source.fitted.data;
}

void Batcher::copy_on_device(const Column& column, const Source& source, std::size_t at,
                             std::size_t item_begin, std::size_t count) const {
  const nb::object leaf = nb::borrow(source.leaf);
  const bool stacks = column.fill.batch_shape.size() != column.fill.item.shape.size();
  const nb::object to = stacks ? column.target.attr("select")(options_.dim, at)
                               : column.target.attr("narrow")(options_.dim, at, count);
  const nb::object from = stacks ? leaf : leaf.attr("narrow")(options_.dim, item_begin, count);
  to.attr("copy_")(from.attr("detach")(), nb::arg("non_blocking") = true);
}

void Batcher::copy(Open& open, const std::vector<Source>& sources, std::size_t item_rows,
                   std::size_t item_begin, std::size_t count) {
  const std::size_t at = open.filled;
  open.filled += count;
  Copying copying(open, finished_);
  if (!open.is_ours) copying.set_long();
  std::size_t bytes = 0;
  try {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Column& column = open.columns[i];
      if (column.framework == Framework::kNone) continue;
      if (column.data == nullptr) {
        copy_on_device(column, sources[i], at, item_begin, count);
      } else {
        bytes += column.fill.outer_count * column.fill.row_bytes * count;
      }
    }
  } catch (...) {
    open.filled = at;  // the rows are free again: no other thread adds to such a batch meanwhile
    throw;
  }
  const auto copy_all = [&] {
    for (std::size_t i = 0; i < sources.size(); ++i) {
      const Column& column = open.columns[i];
      if (column.data == nullptr) continue;
      copy_fill(column.fill, sources[i].data, item_rows, item_begin, column.data, options_.size, at,
                count);
    }
  };
  if (bytes < kLargeBytes) return copy_all();
  copying.set_long();
  const GilReleased released;
  copy_all();
}

void Batcher::make_room(std::size_t taken, std::size_t rows) {
  const TimePoint until = own_deadline();
  const bool has_room = finished_.has_room() ||
                        without_gil([&] { return finished_.wait_for_room(until, is_interrupted); });
  check_open();
  if (has_room) return;
  raise(deadline_exceeded(
      "{} batches wait to be taken, which is the most that are kept, and none was within {} s; {} "
      "of "
      "{} rows were added: call get(), or make the batcher with a larger queue_size",
      finished_.size(), options_.timeout_s, taken, rows));
}

void Batcher::wait_for_copies(const std::shared_ptr<Open>& open, TimePoint until) {
  const bool is_copied = without_gil([&] {
    return finished_.wait_until([&] { return open->copying == 0; }, until, is_interrupted);
  });
  check_open();
  if (is_copied) return;
  raise(deadline_exceeded("a copy into the batch does not end within {} s", options_.timeout_s));
}

void Batcher::add(FillMode mode, nb::handle nest) {
  check_open();
  finish_kept();
  if (mode == FillMode::kStack && add_alike(nest.ptr())) return;
  // Other threads may add while this call waits or copies: it works on its own data, in the memory
  // of the last call.
  std::vector<Source> sources = std::exchange(sources_, {});
  Leaves leaves = std::exchange(leaves_, {});
  const std::size_t structure = read(nest, leaves, sources);
  std::size_t taken = 0;
  std::size_t rows = 1;
  do {
    check_open();
    if (!open_ && !finished_.has_room()) make_room(taken, rows);
    if (!open_) {
      std::shared_ptr<Open> made = open(mode, structure, sources);
      // Python code ran: another thread may have opened one, or closed the batcher.
      if (!open_ && !is_closed()) open_ = std::move(made);
      if (!open_) continue;
    }
    const std::shared_ptr<Open> open = open_;
    const Beginning beginning(open_, open);
    rows = check(*open, mode, structure, sources);
    if (open != open_) continue;  // Python code ran, and another thread filled it meanwhile
    if (!open->is_ours && open->copying > 0) {  // a copy that fails gives its rows back
      wait_for_copies(open, own_deadline());
      continue;
    }
    const std::size_t count = std::min(rows - taken, options_.size - open->filled);
    const bool is_filled = open->filled + count == options_.size;
    if (is_filled && open->is_ours) open_.reset();  // the next item begins another
    copy(*open, sources, rows, taken, count);
    if (is_filled && open_ == open) open_.reset();
    taken += count;
    if (open->filled == options_.size && open->copying == 0) finish(open, rows - taken);
  } while (taken < rows);
  sources.clear();
  leaves.clear();
  sources_ = std::move(sources);
  leaves_ = std::move(leaves);
}

nb::object Batcher::complete(const Open& open) const {
  std::vector<nb::object> leaves;
  leaves.reserve(open.columns.size());
  for (const Column& column : open.columns) {
    nb::object array = column.target;
    if (column.framework != Framework::kNone && open.filled < options_.size) {
      array = narrowed(array, column.framework, options_.dim, 0, open.filled);
    }
    if (column.framework == Framework::kTorch && !options_.device.is_none()) {
      array = array.attr("to")(options_.device, nb::arg("non_blocking") = true);
    } else if (column.framework == Framework::kJax) {
      // A copy: JAX's array must not change when the memory is reused.
      array = nb::module_::import_("jax").attr("device_put")(array.attr("copy")(), options_.device);
    }
    leaves.push_back(std::move(array));
  }
  return fold(structures_[open.structure - 1].text, leaves);
}

void Batcher::finish(const std::shared_ptr<Open>& open, std::size_t rows_left, bool was_kept) {
  nb::object batch;
  try {
    batch = complete(*open);
  } catch (nb::python_error& error) {
    kept_.insert(was_kept ? kept_.begin() : kept_.end(), open);
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    std::string rest;
    if (rows_left > 0) rest = format("; the last {} rows of this item were not added", rows_left);
    if (was_kept) rest = "; this call did nothing else";
    raise_kept(error, *open, rest);
  }
  for (Column& column : open->columns) {
    column.target = nb::object();
    column.data = nullptr;
  }
  spent_ = open;
  finished_.push(std::move(batch));
}

bool Batcher::finish_kept() {
  bool has_finished = false;
  while (!kept_.empty()) {
    const std::shared_ptr<Open> oldest = std::move(kept_.front());
    kept_.pop_front();
    finish(oldest, 0, /*was_kept=*/true);
    has_finished = true;
  }
  return has_finished;
}

void Batcher::raise_kept(nb::python_error& why, const Open& open, const std::string& rest) const {
  const std::string place =
      options_.device.is_none() ? "" : format(" on device {}", shown(options_.device));
  const nb::object error = make_error(failed_precondition(
      "a batch of {} rows cannot be completed{}: {}; it is kept, and the next stack(), cat(), "
      "flush() or get() begins with it: remove the cause before{}",
      open.filled, place, shown(why.value()), rest));
  nb::setattr(error, "__cause__", why.value());
  raise_object(error);
}

bool Batcher::flush() {
  check_open();
  const bool has_finished = finish_kept();
  if (!open_ || open_->filled == 0) return has_finished;
  make_room(0, open_->filled);
  const TimePoint until = own_deadline();
  // It stays the open batch meanwhile, so that a wait that ends early drops none of its rows.
  while (open_ && open_->copying > 0) {
    const std::shared_ptr<Open> awaited = open_;
    wait_for_copies(awaited, until);
  }
  // Another thread may have finished it meanwhile.
  if (!open_ || open_->filled == 0) return has_finished;
  const std::shared_ptr<Open> open = std::move(open_);
  finish(open);
  return true;
}

std::optional<nb::object> Batcher::take() {
  std::optional<nb::object> batch = finished_.pop();
  if (!batch && finish_kept()) batch = finished_.pop();
  return batch;
}

nb::object Batcher::get_now() {
  check_here();
  if (std::optional<nb::object> batch = take()) return std::move(*batch);
  check_open();
  return nb::none();
}

nb::object Batcher::get(nb::handle timeout_s) {
  std::optional<TimePoint> until;
  if (!timeout_s.is_none()) until = deadline(timeout_s);
  check_here();
  if (std::optional<nb::object> batch = finished_.pop()) return std::move(*batch);
  if (!until) until = own_deadline();
  while (true) {
    if (std::optional<nb::object> batch = take()) return std::move(*batch);
    check_open();
    if (without_gil([&] { return finished_.wait_for_batch(*until, is_interrupted); })) continue;
    raise(deadline_exceeded("no batch is finished; the open one has {} of {} rows", filled(),
                            options_.size));
  }
}

void Batcher::call_when_finished(nb::object callback) {
  check_here();
  finished_.call_when_ready([callback = std::move(callback)] { callback(); });
}

void Batcher::close() {
  if (!fork_guard_.check("batcher").ok()) return;  // its lock may be held by the parent
  open_.reset();
  finished_.close();
}

}  // namespace reverie::python
