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

nb::object get(nb::handle dict, Key key) {
  PyObject* const found = PyDict_GetItemWithError(dict.ptr(), key_object(key).ptr());
  if (found != nullptr) return nb::borrow(found);
  if (PyErr_Occurred() != nullptr) raise_pending();
  raise(invalid_argument("out has no '{}'; give it a batch of this buffer, or None",
                         str_of(key_object(key))));
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

ReplayArrays::ReplayArrays(const TransitionPlan& plan, std::size_t count)
    : obs_count_(plan.obs().size()),
      action_count_(plan.action().size()),
      count_(count),
      has_mask_(plan.options().has_sequences()),
      has_hindsight_(plan.options().hindsight.has_value()) {
  const TransitionOptions& options = plan.options();
  const auto item_count = static_cast<std::int64_t>(count);
  const Shape items{item_count};
  const Shape steps =
      options.has_sequences() ? Shape{item_count, std::int64_t{options.steps_max()}} : items;
  const auto add = [&](const char* name, DType dtype, Shape shape) {
    specs_.push_back({name, dtype, std::move(shape)});
  };
  const auto add_leaves = [&](const std::string& name, std::span<const TensorSpec> leaves,
                              bool has_stack) {
    for (const TensorSpec& leaf : leaves) {
      Shape shape = steps;
      if (has_stack && options.frame_stack > 1) shape.push_back(options.frame_stack);
      shape.insert(shape.end(), leaf.shape.begin(), leaf.shape.end());
      specs_.push_back(
          {leaf.name.empty() ? name : name + "/" + leaf.name, leaf.dtype, std::move(shape)});
    }
  };
  add_leaves("obs", plan.obs(), true);
  add_leaves("action", plan.action(), false);
  add("reward", DType::kFloat32, steps);
  add_leaves("next_obs", plan.obs(), true);
  add("terminated", DType::kBool, steps);
  add("discount", DType::kFloat32, steps);
  if (has_mask_) add("mask", DType::kBool, steps);
  add("weights", DType::kFloat32, items);
  add("tickets", DType::kUInt64, items);
  if (has_hindsight_) add("hindsight", DType::kBool, items);
  for (const TensorSpec& spec : specs_) {
    size_bytes_ +=
        static_cast<std::size_t>(element_count(spec.shape)) * dtype_size_bytes(spec.dtype);
  }
}

std::vector<nb::object> ReplayArrays::make() const {
  std::vector<nb::object> arrays;
  arrays.reserve(specs_.size());
  for (const TensorSpec& spec : specs_) arrays.push_back(new_array(spec.dtype, spec.shape));
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
  set(dict, kObs, nest(structures.obs, obs_count_));
  const nb::object action = nest(structures.action, action_count_);
  set(dict, kAction, structures.extra.empty() ? action : nb::object(action["action"]));
  set(dict, kReward, *next++);
  set(dict, kNextObs, nest(structures.obs, obs_count_));
  set(dict, kTerminated, *next++);
  set(dict, kDiscount, *next++);
  if (has_mask_) set(dict, kMask, *next++);
  set(dict, kWeights, *next++);
  set(dict, kTickets, *next++);
  if (has_hindsight_) set(dict, kHindsight, *next++);
  for (const std::string& name : structures.extra) dict[name.c_str()] = action[name.c_str()];
  return dict;
}

std::vector<nb::object> ReplayArrays::find(nb::handle dict,
                                           const ReplayStructures& structures) const {
  if (!PyDict_Check(dict.ptr())) {
    raise_type_error(format("out is {}; it must be a batch of an earlier call, or None",
                            str_of(nb::repr(dict))));
  }
  std::vector<nb::object> arrays;
  arrays.reserve(specs_.size());
  const auto add_nest = [&](Key key, const std::string& structure, std::size_t count) {
    nb::object nest = get(dict, key);
    if (key == kAction && !structures.extra.empty()) {
      nb::dict whole;
      whole["action"] = nest;
      for (const std::string& name : structures.extra) {
        PyObject* const found = PyDict_GetItemString(dict.ptr(), name.c_str());
        if (found == nullptr) {
          raise(invalid_argument("out has no '{}'; give it a batch of this buffer, or None", name));
        }
        whole[name.c_str()] = nb::borrow(found);
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
      raise(invalid_argument("out['{}'] has the structure {}, not {}; give out=None for new arrays",
                             str_of(key_object(key)), taken->text(), structure));
    }
    for (std::size_t i = 0; i < count; ++i) {
      arrays.push_back(nb::borrow(leaves[taken->leaf_of_column(i)]));
    }
  };
  add_nest(kObs, structures.obs, obs_count_);
  add_nest(kAction, structures.action, action_count_);
  arrays.push_back(get(dict, kReward));
  add_nest(kNextObs, structures.obs, obs_count_);
  arrays.push_back(get(dict, kTerminated));
  arrays.push_back(get(dict, kDiscount));
  if (has_mask_) arrays.push_back(get(dict, kMask));
  arrays.push_back(get(dict, kWeights));
  arrays.push_back(get(dict, kTickets));
  if (has_hindsight_) arrays.push_back(get(dict, kHindsight));
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    if (fits(arrays[i], specs_[i])) [[likely]] {
      continue;
    }
    raise(invalid_argument(
        "out['{}'] is not a writable, row-major {} array of shape {}, which this batch needs; give "
        "out=None for new arrays",
        specs_[i].name, dtype_name(specs_[i].dtype), shape_text(specs_[i].shape)));
  }
  return arrays;
}

ReplayBufferTargets replay_targets(const TransitionPlan& plan, std::span<std::byte* const> places) {
  ReplayBufferTargets targets;
  TransitionTargets& to = targets.transitions;
  const auto take = [&](std::size_t count) {
    const auto taken = places.first(count);
    places = places.subspan(count);
    return taken;
  };
  to.obs = take(plan.obs().size());
  to.action = take(plan.action().size());
  to.reward = reinterpret_cast<float*>(take(1)[0]);
  to.next_obs = take(plan.obs().size());
  to.terminated = reinterpret_cast<std::uint8_t*>(take(1)[0]);
  to.discount = reinterpret_cast<float*>(take(1)[0]);
  if (plan.options().has_sequences()) to.mask = reinterpret_cast<std::uint8_t*>(take(1)[0]);
  targets.weights = reinterpret_cast<float*>(take(1)[0]);
  targets.tickets = reinterpret_cast<std::uint64_t*>(take(1)[0]);
  if (plan.options().hindsight) to.hindsight = reinterpret_cast<std::uint8_t*>(take(1)[0]);
  return targets;
}

}  // namespace reverie::python
