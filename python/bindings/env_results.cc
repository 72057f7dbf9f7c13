#include "python/bindings/env_results.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_rows.h"
#include "python/bindings/nest.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

constexpr const char* kViewName = "reverie.pool_view";
// For fewer bytes, releasing the interpreter's lock costs more than copying.
constexpr std::size_t kLargeBytes = 256 * 1024;
// How many results a program may keep before each needs new memory, besides one per batch.
constexpr std::size_t kSparePlaces = 3;

std::size_t row_bytes(const TensorSpec& spec) {
  return static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
}

}  // namespace

struct EnvResults::Place {
  std::size_t batch = 0;
  std::vector<nb::object> arrays;  // env_ids, then the columns
  std::vector<std::byte*> data;    // of the columns
  EnvView* view = nullptr;         // of a capsule, which lives as long as the arrays

  // Whether no program can refer to them.
  bool is_free() const {
    return std::ranges::all_of(arrays,
                               [](const nb::object& array) { return Py_REFCNT(array.ptr()) == 1; });
  }
};

nb::object refuse_unpacking(nb::handle) {
  raise_type_error(
      "step() and reset() of an EnvPool give a future; take its result(), which has observation, "
      "reward, terminated, truncated and info. For Gymnasium's tuples use "
      "reverie.gym.GymVectorEnv");
}

EnvResults::EnvResults(EnvResultSpec spec, std::vector<EnvColumns> batches, bool is_copied)
    : spec_(std::move(spec)),
      batches_(std::move(batches)),
      is_copied_(is_copied),
      all_envs_(spec_.row_count),
      current_(batches_.size()) {
  std::iota(all_envs_.begin(), all_envs_.end(), 0);
  columns_ = {{"", DType::kFloat32, {}}, {"", DType::kBool, {}}, {"", DType::kBool, {}}};
  columns_.insert(columns_.end(), spec_.info.begin(), spec_.info.end());
  columns_.insert(columns_.end(), spec_.observation.begin(), spec_.observation.end());
  first_final_ = columns_.size();
  columns_.insert(columns_.end(), spec_.observation.begin(), spec_.observation.end());
  for (const EnvColumns& batch : batches_) {
    std::vector<std::byte*> sources = {batch.reward, batch.terminated, batch.truncated};
    for (const auto* part : {&batch.info, &batch.observation, &batch.final_observation}) {
      sources.insert(sources.end(), part->begin(), part->end());
    }
    REVERIE_CHECK(sources.size() == columns_.size());
    sources_.push_back(std::move(sources));
  }
  for (std::size_t i = 0; i < first_final_; ++i) {
    copied_bytes_ += spec_.row_count * row_bytes(columns_[i]);
  }
}

EnvResults::PlacePtr EnvResults::make_place(std::size_t batch) const {
  auto place = std::make_shared<Place>();
  place->batch = batch;
  place->arrays.push_back(copy_to_array(std::span<const std::int32_t>(all_envs_)));
  nb::object base;
  if (!is_copied_) {
    place->view = new EnvView{batches_[batch].keeper};
    base = nb::capsule(place->view, kViewName,
                       [](void* view) noexcept { delete static_cast<EnvView*>(view); });
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    const Shape shape = with_rows(spec_.row_count, columns_[i].shape);
    nb::object array;
    if (is_copied_) {
      array = new_array(columns_[i].dtype, shape);
      // Rows of final observations are written when their first episode ends.
      if (i >= first_final_)
        std::memset(array_data(array), 0, spec_.row_count * row_bytes(columns_[i]));
    } else {
      array = view_array(columns_[i].dtype, shape, sources_[batch][i], base);
    }
    place->data.push_back(array_data(array));
    place->arrays.push_back(std::move(array));
  }
  return place;
}

EnvResults::PlacePtr EnvResults::take_place(std::size_t batch) {
  for (const PlacePtr& place : places_) {
    if ((is_copied_ || place->batch == batch) && place->is_free()) return place;
  }
  PlacePtr made = make_place(batch);
  if (places_.size() < batches_.size() * (is_copied_ ? 1 : kSparePlaces) + kSparePlaces) {
    places_.push_back(made);
  } else {
    places_[next_replaced_++ % places_.size()] = made;
  }
  return made;
}

nb::object EnvResults::batch_of(const Place& place) const {
  const nb::object* next = place.arrays.data();
  const nb::object& env_ids = *next++;
  const nb::object& reward = *next++;
  const nb::object& terminated = *next++;
  const nb::object& truncated = *next++;
  nb::object info = owned(PyDict_New());
  for (const TensorSpec& column : spec_.info) {
    const nb::object key = owned(PyUnicode_FromStringAndSize(
        column.name.data(), static_cast<Py_ssize_t>(column.name.size())));
    if (PyDict_SetItem(info.ptr(), key.ptr(), next++->ptr()) < 0) raise_pending();
  }
  const auto nest = [&] {
    const std::span<const nb::object> leaves(next, spec_.observation.size());
    next += leaves.size();
    return fold(spec_.structure, leaves);
  };
  const nb::object observation = nest();
  const nb::object final_observation = nest();
  const std::array<PyObject*, 7> arguments = {
      observation.ptr(),       reward.ptr(),  terminated.ptr(), truncated.ptr(),
      final_observation.ptr(), env_ids.ptr(), info.ptr()};
  return owned(
      PyObject_Vectorcall(spec_.batch_class.ptr(), arguments.data(), arguments.size(), nullptr));
}

void EnvResults::copy_rows(const Place& place, std::size_t batch,
                           std::span<const std::int32_t> envs) const {
  const std::vector<std::byte*>& sources = sources_[batch];
  const auto copy_row = [&](std::size_t column, std::size_t row) {
    const std::size_t size = row_bytes(columns_[column]);
    std::memcpy(place.data[column] + row * size,
                sources[column] + static_cast<std::size_t>(envs[row]) * size, size);
  };
  const bool is_whole = envs.data() == all_envs_.data();
  for (std::size_t column = 0; column < first_final_; ++column) {
    if (is_whole) {
      std::memcpy(place.data[column], sources[column], envs.size() * row_bytes(columns_[column]));
    } else {
      for (std::size_t row = 0; row < envs.size(); ++row) copy_row(column, row);
    }
  }
  constexpr std::size_t kTerminated = 1;
  constexpr std::size_t kTruncated = 2;
  for (std::size_t row = 0; row < envs.size(); ++row) {
    const bool is_over =
        place.data[kTerminated][row] != std::byte{0} || place.data[kTruncated][row] != std::byte{0};
    for (std::size_t column = first_final_; is_over && column < columns_.size(); ++column) {
      copy_row(column, row);
    }
  }
}

nb::object EnvResults::of_envs(std::span<const std::int32_t> envs) {
  REVERIE_CHECK(is_copied_ && envs.size() == spec_.row_count);
  const PlacePtr place = take_place(0);
  const nb::object result = batch_of(*place);  // from now on no other result uses the place
  std::memcpy(array_data(place->arrays[0]), envs.data(), envs.size_bytes());
  const auto copy = [&] { copy_rows(*place, 0, envs); };
  copied_bytes_ < kLargeBytes ? copy() : without_gil(copy);
  return result;
}

nb::object EnvResults::of_batch(std::size_t batch) {
  if (!is_copied_) {
    PlacePtr& current = current_[batch];
    if (!current) current = take_place(batch);
    current->view->is_overwritten = false;
    std::memcpy(array_data(current->arrays[0]), all_envs_.data(),
                all_envs_.size() * sizeof(all_envs_[0]));
    return batch_of(*current);
  }
  const PlacePtr place = take_place(batch);
  const nb::object result = batch_of(*place);
  std::memcpy(array_data(place->arrays[0]), all_envs_.data(),
              all_envs_.size() * sizeof(all_envs_[0]));
  const auto copy = [&] { copy_rows(*place, batch, all_envs_); };
  copied_bytes_ < kLargeBytes ? copy() : without_gil(copy);
  return result;
}

void EnvResults::begin_step(std::size_t batch) {
  if (current_[batch]) current_[batch]->view->is_overwritten = true;
  current_[batch] = nullptr;
}

bool is_overwritten_view(nb::handle array) {
  PyObject* base = PyArray_BASE(as_array(array));
  while (base != nullptr && PyArray_Check(base)) {
    base = PyArray_BASE(reinterpret_cast<PyArrayObject*>(base));
  }
  if (base == nullptr || !PyCapsule_IsValid(base, kViewName)) return false;
  return static_cast<const EnvView*>(PyCapsule_GetPointer(base, kViewName))->is_overwritten;
}

void refuse_overwritten_view(std::string_view name) {
  raise(failed_precondition(
      "{} is a view of a pool's memory, which a later step has overwritten; copy it before that "
      "step, or make the pool with copy=True",
      name));
}

}  // namespace reverie::python
