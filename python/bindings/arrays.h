// NumPy arrays and element types, to and from the library's.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <nanobind/nanobind.h>

#include "python/bindings/numpy_api.h"
#include "reverie/tensor/buffer.h"
#include "reverie/tensor/dtype.h"

namespace reverie::python {

namespace nb = nanobind;

// The same object, in the type of NumPy's functions. Requires an array.
inline PyArrayObject* as_array(nb::handle array) {
  return reinterpret_cast<PyArrayObject*>(array.ptr());
}

// Loads NumPy's C interface. Called once, when the module is imported.
void import_numpy();

// The element type with the same layout as NumPy's: none for strings, objects and unsupported
// types. Ignores the byte order.
std::optional<DType> dtype_of(const PyArray_Descr* descr);

// NumPy's element type; "S" and "U" for kBytes and kString. Raises if it needs ml_dtypes and that
// is not installed.
nb::object numpy_dtype(DType dtype);

// Raises for a numpy.ma.MaskedArray, whose mask would be lost. `what` names it in the
// message.
void refuse_masked(std::string_view what, nb::handle array);

// A new row-major, writable array with its own memory, uninitialised unless elements are objects.
nb::object new_array(DType dtype, std::span<const std::int64_t> shape);

// An array over `buffer`, which it owns from now on. Requires a dtype of fixed size and a buffer of
// the size of the shape.
nb::object array_from_buffer(DType dtype, std::span<const std::int64_t> shape, Buffer buffer);

// A writable array over memory that `base` keeps.
nb::object view_array(DType dtype, std::span<const std::int64_t> shape, std::byte* data,
                      const nb::object& base);

// An array of bytes or str objects from `bytes`: element after element, a 32-bit little-endian
// length and that many bytes. Raises if `bytes` is truncated or not UTF-8.
nb::object array_of_text(DType dtype, std::span<const std::int64_t> shape,
                         std::span<const std::byte> bytes);

// A one-dimensional copy of numbers.
nb::object copy_to_array(std::span<const std::uint64_t> values);
nb::object copy_to_array(std::span<const std::int64_t> values);
nb::object copy_to_array(std::span<const std::int32_t> values);
nb::object copy_to_array(std::span<const std::uint16_t> values);
nb::object copy_to_array(std::span<const double> values);
nb::object copy_to_array(std::span<const float> values);
// The same of booleans, each 0 or 1.
nb::object flags_to_array(std::span<const std::uint8_t> flags);

inline std::byte* array_data(const nb::object& array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

}  // namespace reverie::python
