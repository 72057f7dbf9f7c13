#include "python/bindings/replay_arrays.h"

#include <algorithm>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Interned, never destroyed.
enum Key : std::size_t {
  kObs,
  kAction,
  kReward,
  kNextObs,
  kTerminated,
  kDiscount,
  kMask,
  kWeights,
  kTickets,
  kHindsight
};
nb::handle key_object(Key key) {
  static auto* const keys = [] {
    auto* const made = new std::vector<nb::object>;
    for (const char* name : {"obs", "action", "reward", "next_obs", "terminated", "discount",
                             "mask", "weights", "tickets", "hindsight"}) {
      made->push_back(owned(PyUnicode_InternFromString(name)));
    }
    return made;
  }();
  return (*keys)[key];
}

void set(nb::handle dict, Key key, nb::handle value) {
  if (PyDict_SetItem(dict.ptr(), key_object(key).ptr(), value.ptr()) < 0) raise_pending();
}

// None if there is no such entry, and it may be missing.
nb::object get(nb::handle dict, nb::handle key, bool may_be_missing) {
  PyObject* const found = PyDict_GetItemWithError(dict.ptr(), key.ptr());
  if (found != nullptr) return nb::borrow(found);
  if (PyErr_Occurred() != nullptr) raise_pending();
  if (may_be_missing) return nb::none();
  raise(invalid_argument("out has no '{}'; give it a batch of this buffer, or None", str_of(key)));
}

// Whether `array` is a writable, row-major array of that type and shape.
bool fits(nb::handle array, const TensorSpec& spec) {
  if (!PyArray_Check(array.ptr())) return false;
  auto* const given = reinterpret_cast<PyArrayObject*>(array.ptr());
  return dtype_of(PyArray_DESCR(given)) == spec.dtype && PyArray_ISCARRAY(given) &&
         std::ranges::equal(std::span<const npy_intp>(
                                PyArray_DIMS(given), static_cast<std::size_t>(PyArray_NDIM(given))),
                            spec.shape);
}

}  // namespace

bool is_batch_name(std::string_view name) {
  for (std::size_t key = kObs; key <= kHindsight; ++key) {
    if (str_of(key_object(static_cast<Key>(key))) == name) return true;
  }
  return name == "truncated";
}

std::vector<nb::object> ReplayArrays::make() const {
  std::vector<nb::object> arrays;
  arrays.reserve(specs().size());
  for (const TensorSpec& spec : specs()) arrays.push_back(new_array(spec.dtype, spec.shape));
  return arrays;
}

nb::object ReplayArrays::fold(const ReplayStructures& structures,
                              std::span<const nb::object> arrays) const {
  nb::object dict = owned(PyDict_New());
  const nb::object* next = arrays.data();
  const auto nest = [&](const std::string& structure, std::size_t count) {
    const std::span<const nb::object> leaves(next, count);
    next += count;
    return python::fold(structure, leaves);
  };
  set(dict, kObs, nest(structures.obs, layout_.obs_count()));
  const nb::object action = nest(structures.action, layout_.action_count());
  set(dict, kAction, structures.extra.empty() ? action : nb::object(action["action"]));
  set(dict, kReward, *next++);
  set(dict, kNextObs, nest(structures.obs, layout_.obs_count()));
  set(dict, kTerminated, *next++);
  set(dict, kDiscount, *next++);
  if (layout_.has_mask()) set(dict, kMask, *next++);
  set(dict, kWeights, *next++);
  set(dict, kTickets, *next++);
  if (layout_.has_hindsight()) set(dict, kHindsight, *next++);
  for (const std::string& name : structures.extra) dict[name.c_str()] = action[name.c_str()];
  return dict;
}

std::vector<nb::object> ReplayArrays::find(nb::handle dict, const ReplayStructures& structures,
                                           bool* has_made) const {
  const bool makes_missing = has_made != nullptr;
  if (!PyDict_Check(dict.ptr())) {
    raise_type_error(
        format("out is {}; it must be a batch of an earlier call, or None", shown(dict)));
  }
  std::vector<nb::object> arrays;
  arrays.reserve(specs().size());
  const auto add = [&](Key key) { arrays.push_back(get(dict, key_object(key), makes_missing)); };
  const auto add_nest = [&](Key key, const std::string& structure, std::size_t count) {
    nb::object nest = get(dict, key_object(key), makes_missing);
    if (key == kAction && !structures.extra.empty()) {
      nb::dict whole;
      whole["action"] = nest;
      for (const std::string& name : structures.extra) {
        whole[name.c_str()] = get(dict, nb::str(name.c_str()), makes_missing);
      }
      nest = whole;
    }
    if (count == 1 && PyArray_CheckExact(nest.ptr())) {
      arrays.push_back(nest);
      return;
    }
    Leaves leaves;
    const auto taken = Nest::of(nest, leaves);
    if (taken->text() != structure) {
      if (makes_missing) {
        arrays.resize(arrays.size() + count, nb::none());
        return;
      }
      raise(invalid_argument("out['{}'] has the structure {}, not {}; give out=None for new arrays",
                             str_of(key_object(key)), taken->text(), structure));
    }
    for (std::size_t i = 0; i < count; ++i) {
      arrays.push_back(nb::borrow(leaves[taken->leaf_of_column(i)]));
    }
  };
  add_nest(kObs, structures.obs, layout_.obs_count());
  add_nest(kAction, structures.action, layout_.action_count());
  add(kReward);
  add_nest(kNextObs, structures.obs, layout_.obs_count());
  add(kTerminated);
  add(kDiscount);
  if (layout_.has_mask()) add(kMask);
  add(kWeights);
  add(kTickets);
  if (layout_.has_hindsight()) add(kHindsight);
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (fits(arrays[i], specs()[i])) [[likely]] {
      continue;
    }
    if (makes_missing) {
      arrays[i] = new_array(specs()[i].dtype, specs()[i].shape);
      *has_made = true;
      continue;
    }
    raise(invalid_argument(
        "out['{}'] is not a writable, row-major {} array of shape {}, which this batch needs; give "
        "out=None for new arrays",
        specs()[i].name, dtype_name(specs()[i].dtype), shape_text(specs()[i].shape)));
  }
  return arrays;
}

}  // namespace reverie::python
