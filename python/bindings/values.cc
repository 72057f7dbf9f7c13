#include "python/bindings/values.h"

#include <array>
#include <complex>
#include <cstring>
#include <limits>
#include <optional>
#include <utility>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/env_results.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

std::string name_of_type(nb::handle object) {
  return type_name_of(object.ptr());
}

std::span<const std::int64_t> shape_of(PyArrayObject* array) {
  return {PyArray_DIMS(array), static_cast<std::size_t>(PyArray_NDIM(array))};
}

std::span<const std::byte> bytes_of(PyArrayObject* array) {
  return {static_cast<const std::byte*>(PyArray_DATA(array)),
          static_cast<std::size_t>(PyArray_NBYTES(array))};
}

// NumPy's scalars by their exact type: the offset of the value in the object.
struct ScalarType {
  PyTypeObject* type;
  DType dtype;
  std::size_t offset;
};

const std::array<ScalarType, 16>& scalar_types() {
  static const std::array<ScalarType, 16> table = {{
      {&PyFloatArrType_Type, DType::kFloat32, offsetof(PyFloatScalarObject, obval)},
      {&PyDoubleArrType_Type, DType::kFloat64, offsetof(PyDoubleScalarObject, obval)},
      {&PyLongArrType_Type, DType::kInt64, offsetof(PyLongScalarObject, obval)},
      {&PyIntArrType_Type, DType::kInt32, offsetof(PyIntScalarObject, obval)},
      {&PyBoolArrType_Type, DType::kBool, offsetof(PyBoolScalarObject, obval)},
      {&PyByteArrType_Type, DType::kInt8, offsetof(PyByteScalarObject, obval)},
      {&PyShortArrType_Type, DType::kInt16, offsetof(PyShortScalarObject, obval)},
      {&PyLongLongArrType_Type, DType::kInt64, offsetof(PyLongLongScalarObject, obval)},
      {&PyUByteArrType_Type, DType::kUInt8, offsetof(PyUByteScalarObject, obval)},
      {&PyUShortArrType_Type, DType::kUInt16, offsetof(PyUShortScalarObject, obval)},
      {&PyUIntArrType_Type, DType::kUInt32, offsetof(PyUIntScalarObject, obval)},
      {&PyULongArrType_Type, DType::kUInt64, offsetof(PyULongScalarObject, obval)},
      {&PyULongLongArrType_Type, DType::kUInt64, offsetof(PyULongLongScalarObject, obval)},
      {&PyHalfArrType_Type, DType::kFloat16, offsetof(PyHalfScalarObject, obval)},
      {&PyCFloatArrType_Type, DType::kComplex64, offsetof(PyCFloatScalarObject, obval)},
      {&PyCDoubleArrType_Type, DType::kComplex128, offsetof(PyCDoubleScalarObject, obval)},
  }};
  return table;
}
static_assert(sizeof(long) == 8, "NumPy's long is taken for int64");

// What to do with an element type that cannot be stored.
std::string remedy(PyArrayObject* array) {
  if (PyArray_DESCR(array)->type_num >= NPY_USERDEF) {
    return "store it as a type that NumPy has, such as float32";
  }
  switch (PyArray_DESCR(array)->kind) {
    case 'M':
    case 'm':
      return "store it as int64: array.astype('int64')";
    case 'V':
      return "split its fields into columns of their own, as a dict of arrays";
    case 'O':
      return "store arrays of numbers, str or bytes; a ragged list needs padding";
    case 'f':
      return "store it as float64";
    case 'c':
      return "store it as complex128";
    default:
      return "store it as another type that NumPy has";
  }
}

[[noreturn]] void refuse_dtype(std::string_view path, nb::handle array) {
  const std::string name =
      str_of(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array)))));
  raise_type_error(format("{} has dtype {}, which cannot be stored; {}", column_text(path), name,
                          remedy(as_array(array))));
}

// DLPack's element types: https://dmlc.github.io/dlpack/latest/c_api.html
std::optional<DType> dtype_of_dlpack(std::uint8_t code, std::uint8_t bits) {
  switch (code) {
    case 0:  // kDLInt
      return dtype_from_name(format("int{}", bits));
    case 1:  // kDLUInt
      return dtype_from_name(format("uint{}", bits));
    case 2:  // kDLFloat
      return dtype_from_name(format("float{}", bits));
    case 4:  // kDLBfloat
      return bits == 16 ? std::optional(DType::kBFloat16) : std::nullopt;
    case 5:  // kDLComplex
      return dtype_from_name(format("complex{}", bits));
    case 6:  // kDLBool
      return bits == 8 ? std::optional(DType::kBool) : std::nullopt;
    case 9:  // kDLFloat8_e4m3b11fnuz
      return DType::kFloat8E4M3B11FNUZ;
    case 10:  // kDLFloat8_e4m3fn
      return DType::kFloat8E4M3FN;
    case 11:  // kDLFloat8_e4m3fnuz
      return DType::kFloat8E4M3FNUZ;
    case 12:  // kDLFloat8_e5m2
      return DType::kFloat8E5M2;
    case 13:  // kDLFloat8_e5m2fnuz
      return DType::kFloat8E5M2FNUZ;
    default:
      return std::nullopt;
  }
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  const auto* const head = reinterpret_cast<const std::byte*>(&size);
  const auto* const body = reinterpret_cast<const std::byte*>(text.data());
  out.insert(out.end(), head, head + sizeof(size));
  out.insert(out.end(), body, body + text.size());
}

// Appends one str or bytes. False for any other type. Raises when it is too long.
bool append_element(std::vector<std::byte>& out, std::string_view path, nb::handle element,
                    DType dtype) {
  nb::object encoded = nb::borrow(element);
  if (dtype == DType::kString) {
    if (!PyUnicode_Check(element.ptr())) return false;
    encoded = owned(PyUnicode_AsEncodedString(element.ptr(), "utf-8", "surrogatepass"));
  } else if (!PyBytes_Check(element.ptr())) {
    return false;
  }
  const auto size = static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr()));
  if (size > std::numeric_limits<std::uint32_t>::max()) {
    raise(
        invalid_argument("{} holds {} bytes of text; the bound is 4 GiB", column_text(path), size));
  }
  append_text(out, {PyBytes_AS_STRING(encoded.ptr()), size});
  return true;
}

// Copies elements laid out with any strides (counted in elements) to row-major order.
void gather(const std::byte* from, std::span<const std::int64_t> shape, const std::int64_t* strides,
            std::size_t element_bytes, std::byte*& to) {
  if (shape.empty()) {
    std::memcpy(to, from, element_bytes);
    to += element_bytes;
    return;
  }
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    gather(from + i * strides[0] * static_cast<std::int64_t>(element_bytes), shape.subspan(1),
           strides + 1, element_bytes, to);
  }
}

bool is_row_major(const nb::ndarray<nb::ro>& array) {
  std::int64_t expected = 1;
  for (std::size_t i = array.ndim(); i-- > 0;) {
    const auto extent = static_cast<std::int64_t>(array.shape(i));
    if (extent == 0) return true;
    if (extent != 1 && array.stride(i) != expected) return false;
    expected *= extent;
  }
  return true;
}

}  // namespace

void Values::push_scalar(ColumnId column, DType dtype, const void* value) {
  const std::size_t size = dtype_size_bytes(dtype);
  std::byte* const place = slot().scalar;
  std::memcpy(place, value, size);
  push(column, dtype, {}, {place, size});
}

bool Values::add(ColumnId column, PyObject* leaf) {
  if (PyArray_CheckExact(leaf)) {
    PyArrayObject* const array = as_array(leaf);
    const std::optional<DType> dtype = dtype_of(PyArray_DESCR(array));
    if (!dtype || !PyArray_IS_C_CONTIGUOUS(array) || !PyArray_ISNOTSWAPPED(array)) return false;
    if (PyArray_BASE(array) != nullptr && is_overwritten_view(leaf)) return false;
    push(column, *dtype, shape_of(array), bytes_of(array));
    return true;
  }
  return add_python_scalar(column, leaf) || add_numpy_scalar(column, leaf);
}

bool Values::add_python_scalar(ColumnId column, PyObject* leaf) {
  if (PyFloat_CheckExact(leaf)) {
    const double value = PyFloat_AS_DOUBLE(leaf);
    push_scalar(column, DType::kFloat64, &value);
    return true;
  }
  if (PyBool_Check(leaf)) {
    const bool value = leaf == Py_True;
    push_scalar(column, DType::kBool, &value);
    return true;
  }
  if (PyLong_CheckExact(leaf)) {
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(leaf, &overflow);
    if (overflow != 0) return false;
    push_scalar(column, DType::kInt64, &value);
    return true;
  }
  if (PyComplex_CheckExact(leaf)) {
    const std::complex<double> value(PyComplex_RealAsDouble(leaf), PyComplex_ImagAsDouble(leaf));
    push_scalar(column, DType::kComplex128, &value);
    return true;
  }
  return false;
}

bool Values::add_numpy_scalar(ColumnId column, PyObject* leaf) {
  for (const ScalarType& scalar : scalar_types()) {
    if (Py_TYPE(leaf) != scalar.type) continue;
    push_scalar(column, scalar.dtype, reinterpret_cast<const std::byte*>(leaf) + scalar.offset);
    return true;
  }
  return false;
}

void Values::add_any(ColumnId column, std::string_view path, nb::handle leaf) {
  if (add(column, leaf.ptr())) return;
  if (leaf.is_none()) {
    raise_type_error(
        format("{} is None; leave it out of the step, or give it a value", column_text(path)));
  }
  if (PyArray_Check(leaf.ptr())) return add_array(column, path, nb::borrow(leaf));
  // NumPy's str_ and bytes_ are str and bytes, too.
  if (PyUnicode_Check(leaf.ptr()) || PyBytes_Check(leaf.ptr())) return add_text(column, path, leaf);
  if (PyLong_Check(leaf.ptr())) {  // a subclass such as an IntEnum, or too large a number
    int overflow = 0;
    const std::int64_t value = PyLong_AsLongLongAndOverflow(leaf.ptr(), &overflow);
    if (overflow != 0) {
      raise(invalid_argument(
          "{} is the int {}, which does not fit into int64; store a NumPy array of another dtype",
          column_text(path), shown(leaf)));
    }
    return push_scalar(column, DType::kInt64, &value);
  }
  if (PyArray_CheckScalar(leaf.ptr())) {  // float64's subclasses, datetime64, void, ml_dtypes'
    return add_array(column, path, owned(PyArray_FromScalar(leaf.ptr(), nullptr)));
  }
  if (add_dlpack(column, path, leaf)) return;
  if (nb::hasattr(leaf, "__array__") || nb::hasattr(leaf, "__array_interface__") ||
      PyObject_CheckBuffer(leaf.ptr())) {
    nb::object array = nb::steal(PyArray_FromAny(leaf.ptr(), nullptr, 0, 0, 0, nullptr));
    if (!array.is_valid()) {
      if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
      nb::python_error error;
      raise_type_error(format("{} is a {} that NumPy cannot read: {}", column_text(path),
                              name_of_type(leaf), str_of(error.value())));
    }
    if (PyArray_DESCR(as_array(array))->type_num == NPY_OBJECT &&
        shape_of(as_array(array)).empty()) {  // text, as a tensor of TensorFlow's, or an object
      PyObject* const element = *reinterpret_cast<PyObject* const*>(array_data(array));
      if (!PyUnicode_Check(element) && !PyBytes_Check(element)) refuse_dtype(path, array);
    }
    return add_array(column, path, std::move(array));
  }
  if (PyFloat_Check(leaf.ptr()) || PyComplex_Check(leaf.ptr())) {
    return add_array(column, path, owned(PyArray_FromAny(leaf.ptr(), nullptr, 0, 0, 0, nullptr)));
  }
  raise_type_error(format(
      "{} is a {}, which cannot be stored; give it a NumPy array, a number, str, bytes, or an "
      "array that has __dlpack__ or __array__",
      column_text(path), name_of_type(leaf)));
}

void Values::add_text(ColumnId column, std::string_view path, nb::handle leaf) {
  const DType dtype = PyUnicode_Check(leaf.ptr()) ? DType::kString : DType::kBytes;
  std::vector<std::byte>& text = slot().text;
  text.clear();
  append_element(text, path, leaf, dtype);
  push(column, dtype, {}, text);
}

void Values::add_text_array(ColumnId column, std::string_view path, nb::object array) {
  // A plain array: numpy.char's may hold no objects.
  nb::object objects =
      owned(PyArray_FromArray(as_array(array), PyArray_DescrFromType(NPY_OBJECT),
                              NPY_ARRAY_CARRAY | NPY_ARRAY_FORCECAST | NPY_ARRAY_ENSUREARRAY));
  const auto* const elements = reinterpret_cast<PyObject* const*>(array_data(objects));
  const std::int64_t count = PyArray_SIZE(as_array(objects));
  // An empty array of objects tells nothing of its elements: bytes, as Reverb has it.
  const bool is_text = count > 0 ? PyUnicode_Check(elements[0])
                                 : PyArray_DESCR(as_array(array))->type_num == NPY_UNICODE;
  const DType dtype = is_text ? DType::kString : DType::kBytes;
  std::vector<std::byte>& text = slot().text;
  text.clear();
  for (std::int64_t i = 0; i < count; ++i) {
    if (append_element(text, path, elements[i], dtype)) continue;
    raise_type_error(format(
        "{} has dtype {}, and its element {} is a {}; all elements must be str, or all bytes",
        column_text(path),
        str_of(nb::borrow(reinterpret_cast<PyObject*>(PyArray_DESCR(as_array(array))))), i,
        name_of_type(elements[i])));
  }
  push(column, dtype, shape_of(as_array(objects)), text);
  held_.push_back(std::move(objects));
}

void Values::add_array(ColumnId column, std::string_view path, nb::object array) {
  refuse_masked(column_text(path), array);
  if (PyArray_BASE(as_array(array)) != nullptr && is_overwritten_view(array)) {
    refuse_overwritten_view(column_text(path));
  }
  const PyArray_Descr* const descr = PyArray_DESCR(as_array(array));
  const std::optional<DType> dtype = dtype_of(descr);
  if (!dtype) {
    const bool is_text = descr->type_num == NPY_OBJECT || descr->type_num == NPY_STRING ||
                         descr->type_num == NPY_UNICODE || descr->kind == 'T';
    if (!is_text) refuse_dtype(path, array);
    return add_text_array(column, path, std::move(array));
  }
  // A row-major copy in the machine's byte order where it is not that already.
  PyArray_Descr* const native =
      PyArray_DescrNewByteorder(const_cast<PyArray_Descr*>(descr), NPY_NATIVE);
  if (native == nullptr) raise_pending();
  nb::object plain = owned(PyArray_FromArray(as_array(array), native, NPY_ARRAY_CARRAY_RO));
  push(column, *dtype, shape_of(as_array(plain)), bytes_of(as_array(plain)));
  held_.push_back(std::move(plain));
}

bool Values::add_dlpack(ColumnId column, std::string_view path, nb::handle leaf) {
  if (!nb::hasattr(leaf, "__dlpack__") || !nb::hasattr(leaf, "__dlpack_device__")) return false;
  nb::ndarray<nb::ro> array;
  bool is_elsewhere = false;
  try {
    const nb::object device = leaf.attr("__dlpack_device__")();
    is_elsewhere = nb::cast<int>(device[0]) != nb::device::cpu::value;
    if (!is_elsewhere) {
      nb::object capsule = leaf.attr("__dlpack__")();
      if (!nb::try_cast<nb::ndarray<nb::ro>>(capsule, array)) return false;
    }
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C in its code
    // Some that refuse DLPack (a read-only array, a type that it lacks) have __array__ yet.
    if (nb::hasattr(leaf, "__array__")) return false;
    raise_type_error(format("{} is a {} that cannot be read: {}", column_text(path),
                            name_of_type(leaf), str_of(error.value())));
  }
  if (is_elsewhere) {
    raise_type_error(
        format("{} is a {} on a device other than the CPU; copy it to the CPU first, with .cpu() "
               "or jax.device_get",
               column_text(path), name_of_type(leaf)));
  }
  const std::optional<DType> dtype = array.dtype().lanes == 1
                                         ? dtype_of_dlpack(array.dtype().code, array.dtype().bits)
                                         : std::nullopt;
  if (!dtype) {
    raise_type_error(format("{} has dtype {}, which cannot be stored; convert it first",
                            column_text(path), str_of(leaf.attr("dtype"))));
  }
  Slot& place = slot();
  place.shape.assign(array.shape_ptr(), array.shape_ptr() + array.ndim());
  const std::size_t element_bytes = dtype_size_bytes(*dtype);
  const std::size_t size_bytes = array.size() * element_bytes;
  const auto* const data = static_cast<const std::byte*>(array.data());
  if (is_row_major(array)) {
    push(column, *dtype, place.shape, {data, size_bytes});
    imported_.push_back(std::move(array));
  } else {
    place.text.resize(size_bytes);
    std::byte* to = place.text.data();
    gather(data, place.shape, array.stride_ptr(), element_bytes, to);
    push(column, *dtype, place.shape, place.text);
  }
  return true;
}

}  // namespace reverie::python
