// Arrays of any framework as memory; for NumPy and torch without a call into Python.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "python/bindings/values.h"
#include "reverie/tensor/dtype.h"
#include "reverie/tensor/shape.h"

namespace reverie::python {

namespace nb = nanobind;

enum class Framework : std::uint8_t { kNone, kNumpy, kTorch, kJax };

// One array in place. If it is not row-major on the CPU with a supported type, `data` is
// null.
struct LeafView {
  Framework framework = Framework::kNone;  // kNone: not an array
  DType dtype = DType::kFloat32;
  std::span<const std::int64_t> shape;  // as long as `keep`, or the leaf, lives
  const std::byte* data = nullptr;
  bool is_on_cpu = true;
  nb::object keep;  // temporary objects
};

// The layout of one array, for the many that follow and have the same.
struct LeafLayout {
  static LeafLayout of(DType dtype, std::span<const std::int64_t> shape);
  // The elements of a NumPy array or torch.Tensor (no subclass) with this layout, row-major on the
  // CPU. Null for all else, and where only torch can tell. Runs no Python code.
  const std::byte* elements(PyObject* leaf) const;

  DType dtype = DType::kFloat32;
  Shape shape;
  std::optional<nb::dlpack::dtype> exchanged;  // the type in DLPack; absent: torch has to be asked
  std::uintptr_t pair_bit = 0;  // set in the addresses at which torch has to be asked
};

// Reads arrays, one after another. Caches the latest types.
class LeafReader {
 public:
  // Numbers of Python and NumPy count as arrays without dimensions. Raises TypeError naming `path`
  // for an array whose elements cannot be batched.
  LeafView read(PyObject* leaf, std::string_view path);

 private:
  LeafView read_numpy(PyObject* leaf) const;
  // False if the type of `leaf` does not export its memory through DLPack's table of C functions.
  bool read_exchange(PyObject* leaf, LeafView& view);
  LeafView read_any(PyObject* leaf, std::string_view path);

  nb::object exchange_type_;  // the type that `exchange_` belongs to
  int (*exchange_)(void*, void*) = nullptr;
};

}  // namespace reverie::python
