#define REVERIE_IMPORTS_NUMPY
#include "python/bindings/arrays.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"
#include "reverie/tensor/shape.h"

namespace reverie::python {
namespace {

static_assert(std::is_same_v<npy_intp, std::int64_t>, "shapes are handed over without a copy");

constexpr int kTypeNumberCount = 24;  // NumPy's own; others come from packages such as ml_dtypes

constexpr std::optional<DType> integer_of(std::size_t size_bytes, bool is_signed) {
  switch (size_bytes) {
    case 1:
      return is_signed ? DType::kInt8 : DType::kUInt8;
    case 2:
      return is_signed ? DType::kInt16 : DType::kUInt16;
    case 4:
      return is_signed ? DType::kInt32 : DType::kUInt32;
    case 8:
      return is_signed ? DType::kInt64 : DType::kUInt64;
    default:
      return std::nullopt;
  }
}

constexpr std::optional<DType> builtin_of(int type_number) {
  switch (type_number) {
    case NPY_BOOL:
      return DType::kBool;
    case NPY_BYTE:
      return DType::kInt8;
    case NPY_UBYTE:
      return DType::kUInt8;
    case NPY_SHORT:
      return integer_of(sizeof(short), true);
    case NPY_USHORT:
      return integer_of(sizeof(short), false);
    case NPY_INT:
      return integer_of(sizeof(int), true);
    case NPY_UINT:
      return integer_of(sizeof(int), false);
    case NPY_LONG:
      return integer_of(sizeof(long), true);
    case NPY_ULONG:
      return integer_of(sizeof(long), false);
    case NPY_LONGLONG:
      return DType::kInt64;
    case NPY_ULONGLONG:
      return DType::kUInt64;
    case NPY_HALF:
      return DType::kFloat16;
    case NPY_FLOAT:
      return DType::kFloat32;
    case NPY_DOUBLE:
      return DType::kFloat64;
    case NPY_CFLOAT:
      return DType::kComplex64;
    case NPY_CDOUBLE:
      return DType::kComplex128;
    default:
      return std::nullopt;
  }
}

// One entry per type number, so that the hot path is one load.
constexpr auto kBuiltins = [] {
  std::array<std::optional<DType>, kTypeNumberCount> table{};
  for (int i = 0; i < kTypeNumberCount; ++i) table[static_cast<std::size_t>(i)] = builtin_of(i);
  return table;
}();

// Types that packages registered with NumPy, by the number they got.
std::optional<DType> registered_of(const PyArray_Descr* descr) {
  static auto* const known = new std::vector<std::pair<int, DType>>;
  for (const auto& [number, dtype] : *known) {
    if (number == descr->type_num) return dtype;
  }
  const std::string whole = name_of_type(descr->typeobj);
  std::string_view name = whole;
  name.remove_prefix(std::min(name.size(), name.rfind('.') + 1));
  const std::optional<DType> dtype = dtype_from_name(name);
  // A package may name its own type "float32" or "bytes": only the small floats are accepted.
  if (!dtype || *dtype < DType::kBFloat16 || has_variable_size(*dtype)) return std::nullopt;
  known->emplace_back(descr->type_num, *dtype);
  return dtype;
}

int type_number(DType dtype) {
  switch (dtype) {
    case DType::kBool:
      return NPY_BOOL;
    case DType::kInt8:
      return NPY_INT8;
    case DType::kInt16:
      return NPY_INT16;
    case DType::kInt32:
      return NPY_INT32;
    case DType::kInt64:
      return NPY_INT64;
    case DType::kUInt8:
      return NPY_UINT8;
    case DType::kUInt16:
      return NPY_UINT16;
    case DType::kUInt32:
      return NPY_UINT32;
    case DType::kUInt64:
      return NPY_UINT64;
    case DType::kFloat16:
      return NPY_FLOAT16;
    case DType::kFloat32:
      return NPY_FLOAT32;
    case DType::kFloat64:
      return NPY_FLOAT64;
    case DType::kComplex64:
      return NPY_COMPLEX64;
    case DType::kComplex128:
      return NPY_COMPLEX128;
    case DType::kBytes:
      return NPY_STRING;
    case DType::kString:
      return NPY_UNICODE;
    default:
      return NPY_NOTYPE;
  }
}

nb::object small_float(DType dtype) {
  static auto* const known = new std::array<nb::object, 32>;
  nb::object& entry = (*known)[static_cast<std::size_t>(dtype)];
  if (!entry.is_valid()) {
    const std::string name(dtype_name(dtype));
    nb::object type;
    try {
      type = nb::module_::import_("ml_dtypes").attr(name.c_str());
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
      raise_missing_package(
          format("{} arrays need the package ml_dtypes, which could not be imported; install it, "
                 "or store another dtype",
                 name));
    }
    PyArray_Descr* descr = nullptr;
    if (PyArray_DescrConverter(type.ptr(), &descr) == NPY_FAIL) raise_pending();
    entry = owned(reinterpret_cast<PyObject*>(descr));
  }
  return entry;
}

template <typename T>
nb::object copied(int number, std::span<const T> values) {
  npy_intp count = static_cast<npy_intp>(values.size());
  nb::object array = owned(PyArray_SimpleNew(1, &count, number));
  if (!values.empty()) std::memcpy(array_data(array), values.data(), values.size_bytes());
  return array;
}

npy_intp* dims(std::span<const std::int64_t> shape) {
  return const_cast<npy_intp*>(shape.data());  // NumPy only reads it
}

int rank(std::span<const std::int64_t> shape) {
  return static_cast<int>(shape.size());
}

// UTF-8 as a str. What was written as bytes may be invalid: then invalid bytes become lone
// surrogates, as in file names.
nb::object decoded_text(const char* text, Py_ssize_t size) {
  nb::object decoded = nb::steal(PyUnicode_DecodeUTF8(text, size, "surrogatepass"));
  if (decoded) return decoded;
  if (PyErr_ExceptionMatches(PyExc_UnicodeDecodeError) == 0) throw nb::python_error();
  PyErr_Clear();
  return owned(PyUnicode_DecodeUTF8(text, size, "surrogateescape"));
}

}  // namespace

void import_numpy() {
  if (PyArray_ImportNumPyAPI() < 0) raise_pending();
}

std::optional<DType> dtype_of(const PyArray_Descr* descr) {
  const int number = descr->type_num;
  if (number >= 0 && number < kTypeNumberCount) return kBuiltins[static_cast<std::size_t>(number)];
  return registered_of(descr);
}

nb::object numpy_dtype(DType dtype) {
  const int number = type_number(dtype);
  if (number == NPY_NOTYPE) return small_float(dtype);
  return owned(reinterpret_cast<PyObject*>(PyArray_DescrFromType(number)));
}

void refuse_masked(std::string_view what, nb::handle array) {
  // Called for everything except plain arrays and numbers; usually it needs no call into Python.
  if (!PyArray_Check(array.ptr()) || PyArray_CheckExact(array.ptr())) return;
  static const nb::object* const masked =
      new nb::object(nb::module_::import_("numpy.ma").attr("MaskedArray"));
  if (!nb::isinstance(array, *masked)) return;
  raise_type_error(
      format("{} is a masked array, whose mask would be lost; give array.filled(value), or the "
             "mask as an array of its own",
             what));
}

nb::object new_array(DType dtype, std::span<const std::int64_t> shape) {
  nb::object descr = has_variable_size(dtype)
                         ? owned(reinterpret_cast<PyObject*>(PyArray_DescrFromType(NPY_OBJECT)))
                         : numpy_dtype(dtype);
  return owned(PyArray_NewFromDescr(&PyArray_Type,
                                    reinterpret_cast<PyArray_Descr*>(descr.release().ptr()),
                                    rank(shape), dims(shape), nullptr, nullptr, 0, nullptr));
}

nb::object array_from_buffer(DType dtype, std::span<const std::int64_t> shape, Buffer buffer) {
  if (buffer.size_bytes() == 0) return new_array(dtype, shape);
  auto* const held = new Buffer(std::move(buffer));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Buffer*>(p); });
  return view_array(dtype, shape, held->data(), owner);
}

nb::object view_array(DType dtype, std::span<const std::int64_t> shape, std::byte* data,
                      const nb::object& base) {
  nb::object array = owned(PyArray_NewFromDescr(
      &PyArray_Type, reinterpret_cast<PyArray_Descr*>(numpy_dtype(dtype).release().ptr()),
      rank(shape), dims(shape), nullptr, data, NPY_ARRAY_CARRAY, nullptr));
  nb::object kept = base;
  if (PyArray_SetBaseObject(reinterpret_cast<PyArrayObject*>(array.ptr()), kept.release().ptr()) <
      0) {
    raise_pending();
  }
  return array;
}

nb::object array_of_text(DType dtype, std::span<const std::int64_t> shape,
                         std::span<const std::byte> bytes) {
  nb::object array = new_array(dtype, shape);
  auto** const elements = reinterpret_cast<PyObject**>(array_data(array));
  const std::int64_t count = element_count(shape);
  for (std::int64_t i = 0; i < count; ++i) {
    std::uint32_t size = 0;
    if (bytes.size() >= sizeof(size)) {
      std::memcpy(&size, bytes.data(), sizeof(size));
      bytes = bytes.subspan(sizeof(size));
    } else {
      raise(data_loss("a {} column of {} elements ends after {}", dtype_name(dtype), count, i));
    }
    if (size > bytes.size()) {
      raise(data_loss("element {} of a {} column has {} bytes, but {} are left", i,
                      dtype_name(dtype), size, bytes.size()));
    }
    const auto* const text = reinterpret_cast<const char*>(bytes.data());
    nb::object element = dtype == DType::kString ? decoded_text(text, size)
                                                 : owned(PyBytes_FromStringAndSize(text, size));
    // NumPy starts an array of objects with None (or null): the old one is released.
    Py_XDECREF(std::exchange(elements[i], element.release().ptr()));
    bytes = bytes.subspan(size);
  }
  return array;
}

nb::object copy_to_array(std::span<const std::uint64_t> values) {
  return copied(NPY_UINT64, values);
}
nb::object copy_to_array(std::span<const std::int64_t> values) {
  return copied(NPY_INT64, values);
}
nb::object copy_to_array(std::span<const std::int32_t> values) {
  return copied(NPY_INT32, values);
}
nb::object copy_to_array(std::span<const std::uint16_t> values) {
  return copied(NPY_UINT16, values);
}
nb::object copy_to_array(std::span<const double> values) {
  return copied(NPY_FLOAT64, values);
}
nb::object copy_to_array(std::span<const float> values) {
  return copied(NPY_FLOAT32, values);
}
nb::object flags_to_array(std::span<const std::uint8_t> flags) {
  return copied(NPY_BOOL, flags);
}

}  // namespace reverie::python
