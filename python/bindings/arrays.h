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

// The same object, as NumPy's functions take it. Requires an array.
inline PyArrayObject* as_array(nb::handle array) {
  return reinterpret_cast<PyArrayObject*>(array.ptr());
}

// Loads NumPy's C interface. Called once, when the module is imported.
void import_numpy();

// The element type whose bytes NumPy lays out as we do: none for strings, objects and what is not
// supported. Byte order is not looked at.
std::optional<DType> dtype_of(const PyArray_Descr* descr);

// NumPy's element type; "S" and "U" for kBytes and kString. Raises when it needs ml_dtypes and
// that is not installed.
nb::object numpy_dtype(DType dtype);

// Raises for an instance of numpy.ma.MaskedArray, of which only the data would be kept. `what`
// names it in the message.
void refuse_masked(std::string_view what, nb::handle array);

// An array of its own memory, row-major and writable, uninitialised unless elements are objects.
nb::object new_array(DType dtype, std::span<const std::int64_t> shape);

// An array over `buffer`, which it owns from now on. Requires a dtype of fixed size and a buffer of
// as many bytes as the shape takes.
nb::object array_from_buffer(DType dtype, std::span<const std::int64_t> shape, Buffer buffer);

// A writable array over memory that `base` keeps.
nb::object view_array(DType dtype, std::span<const std::int64_t> shape, std::byte* data,
                      const nb::object& base);

// An array of bytes or str objects from `bytes`: element after element, a 32-bit little-endian
// length and that many bytes. Raises when `bytes` is cut short or not UTF-8.
nb::object array_of_text(DType dtype, std::span<const std::int64_t> shape,
                         std::span<const std::byte> bytes);

// A one-dimensional copy of numbers.
nb::object copy_to_array(std::span<const std::uint64_t> values);
nb::object copy_to_array(std::span<const std::int64_t> values);
nb::object copy_to_array(std::span<const std::int32_t> values);
nb::object copy_to_array(std::span<const std::uint16_t> values);
nb::object copy_to_array(std::span<const double> values);
nb::object copy_to_array(std::span<const float> values);

inline std::byte* array_data(const nb::object& array) {
  return static_cast<std::byte*>(PyArray_DATA(reinterpret_cast<PyArrayObject*>(array.ptr())));
}

}  // namespace reverie::python
