#include "python/bindings/rpc_values.h"

#include <array>
#include <complex>
#include <cstring>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_records.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Smaller arrays are copied: that costs less than keeping them.
constexpr std::size_t kLentBytesMin = std::size_t{64} << 10;
// Larger copies release the interpreter's lock.
constexpr std::size_t kCopyWithoutGilMin = std::size_t{1} << 20;
// Received named tuples are instances of classes made for them; at most this many are kept.
constexpr std::size_t kTupleClassesMax = 1024;

std::shared_ptr<const void> copied(const std::byte* data, std::size_t size) {
  std::shared_ptr<std::byte[]> copy(new std::byte[size]);
  if (size >= kCopyWithoutGilMin) {
    const GilReleased released;
    std::memcpy(copy.get(), data, size);
  } else {
    std::memcpy(copy.get(), data, size);
  }
  return {copy, copy.get()};
}

nb::object text_of(std::span<const std::byte> bytes) {
  nb::object text = nb::steal(PyUnicode_DecodeUTF8(reinterpret_cast<const char*>(bytes.data()),
                                                   static_cast<Py_ssize_t>(bytes.size()), nullptr));
  if (!text.is_valid()) {
    PyErr_Clear();
    raise(data_loss("a received text is not valid UTF-8"));
  }
  return text;
}

// collections.namedtuple's class of these names.
nb::object tuple_class(std::span<const std::byte> names, std::size_t count) {
  static auto* const known = new std::unordered_map<std::string, PyObject*>;
  const std::string key(reinterpret_cast<const char*>(names.data()), names.size());
  const auto found = known->find(key);
  if (found != known->end()) return nb::borrow(found->second);
  const nb::list words = nb::cast<nb::list>(text_of(names).attr("split")(" "));
  if (nb::len(words) != count + 1 || known->size() >= kTupleClassesMax) return {};
  nb::list fields;
  for (std::size_t i = 1; i <= count; ++i) fields.append(words[i]);
  try {
    nb::object made = nb::module_::import_("collections").attr("namedtuple")(words[0], fields);
    known->emplace(key, nb::object(made).release().ptr());
    return made;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    return {};  // no class can have such field names: a plain tuple is used
  }
}

// Reads one payload.
class Decoder {
 public:
  Decoder(const Payload& payload, Pickle pickle, DeviceTensors* devices)
      : reader_(payload), pickle_(pickle), devices_(devices, payload) {
    if (!payload.bulk.empty()) {
      auto* const kept = new std::shared_ptr<const void>(payload.bulk.front().keep);
      keeper_ = nb::capsule(
          kept, [](void* p) noexcept { delete static_cast<std::shared_ptr<const void>*>(p); });
    }
  }

  nb::object decode_all() {
    if (reader_.done()) return nb::none();
    nb::object value = decode();
    if (!reader_.done()) raise(data_loss("a received message has bytes after its value"));
    devices_.finish();
    return value;
  }

 private:
  nb::object decode() {
    const ValueToken token = unwrap(reader_.next());
    switch (token.kind) {
      case ValueKind::kNone:
        return nb::none();
      case ValueKind::kFalse:
        return nb::borrow(Py_False);
      case ValueKind::kTrue:
        return nb::borrow(Py_True);
      case ValueKind::kInteger:
        return owned(PyLong_FromLongLong(token.integer));
      case ValueKind::kBigInteger:
        return big_integer(token);
      case ValueKind::kReal:
        return owned(PyFloat_FromDouble(token.real));
      case ValueKind::kComplex:
        return owned(PyComplex_FromDoubles(token.complex.real(), token.complex.imag()));
      case ValueKind::kText:
        return text_of(token.bytes);
      case ValueKind::kBytes:
        return owned(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(token.bytes.data()),
                                               static_cast<Py_ssize_t>(token.bytes.size())));
      case ValueKind::kList: {
        nb::object list = owned(PyList_New(0));
        for (std::size_t i = 0; i < token.count; ++i) {
          if (PyList_Append(list.ptr(), decode().ptr()) < 0) raise_pending();
        }
        return list;
      }
      case ValueKind::kTuple:
        return tuple(token.count);
      case ValueKind::kNamedTuple: {
        const nb::object type = tuple_class(token.bytes, token.count);
        nb::object values = tuple(token.count);
        return type.is_valid() ? type.attr("_make")(values) : values;
      }
      case ValueKind::kRecord:
        return record(token);
      case ValueKind::kPickled:
        return unpickled(token);
      case ValueKind::kDict: {
        nb::object dict = owned(PyDict_New());
        for (std::size_t i = 0; i < token.count; ++i) {
          const nb::object key = decode();
          const nb::object value = decode();
          if (PyDict_SetItem(dict.ptr(), key.ptr(), value.ptr()) < 0) refuse_unhashable();
        }
        return dict;
      }
      case ValueKind::kSet:
      case ValueKind::kFrozenSet: {
        const nb::object items = tuple(token.count);
        nb::object set = nb::steal(token.kind == ValueKind::kSet ? PySet_New(items.ptr())
                                                                 : PyFrozenSet_New(items.ptr()));
        if (!set.is_valid()) refuse_unhashable();
        return set;
      }
      case ValueKind::kScalar: {
        const nb::object array = new_array(token.dtype, {});
        std::memcpy(array_data(array), token.bytes.data(), token.bytes.size());
        return array[nb::tuple()];
      }
      case ValueKind::kTensor:
        return tensor(token);
      case ValueKind::kDeviceTensor:
        if (token.device.size() == kDeviceRecordBytes) return devices_.read(token);
        return devices_.on_device(tensor(token), token);
    }
    return nb::none();
  }

  nb::object tuple(std::size_t count) {
    // Each value takes a byte at least, so the count is no larger than the message.
    nb::object made = owned(PyTuple_New(static_cast<Py_ssize_t>(count)));
    for (std::size_t i = 0; i < count; ++i) {
      PyTuple_SET_ITEM(made.ptr(), static_cast<Py_ssize_t>(i), decode().release().ptr());
    }
    return made;
  }

  nb::object record(const ValueToken& token) {
    const Record known = record_named(token.bytes, token.count);
    std::vector<nb::object> values;
    for (std::size_t i = 0; i < token.count; ++i) values.push_back(decode());
    return make_record(known, values);
  }

  nb::object unpickled(const ValueToken& token) const {
    if (pickle_ == Pickle::kRefused) {
      raise_type_error(
          "a pickled value came, which may run any code; it is read where both ends say "
          "allow_pickle=True and have a token");
    }
    const nb::object bytes =
        owned(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(token.bytes.data()),
                                        static_cast<Py_ssize_t>(token.bytes.size())));
    try {
      return nb::module_::import_("reverie.trusted").attr("loads")(bytes);
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C in its code
      raise(data_loss("a pickled value that came cannot be read: {}: {}",
                      type_name_of(error.value().ptr()), str_of(error.value())));
    }
  }

  nb::object big_integer(const ValueToken& token) {
    const nb::object bytes =
        owned(PyBytes_FromStringAndSize(reinterpret_cast<const char*>(token.bytes.data()),
                                        static_cast<Py_ssize_t>(token.bytes.size())));
    nb::object number =
        nb::borrow(reinterpret_cast<PyObject*>(&PyLong_Type)).attr("from_bytes")(bytes, "little");
    return token.is_negative ? owned(PyNumber_Negative(number.ptr())) : number;
  }

  nb::object tensor(const ValueToken& token) {
    const nb::object torch =
        token.maker == TensorMaker::kTorch ? loaded_package("torch") : nb::object();
    const DType dtype = torch.is_valid() ? numpy_bits_of(token.dtype) : token.dtype;
    nb::object array =
        token.bytes.empty()
            ? new_array(dtype, token.shape)
            : view_array(dtype, token.shape, const_cast<std::byte*>(token.bytes.data()), keeper_);
    if (torch.is_valid()) return torch_tensor_of(array, token.dtype);
    if (token.maker == TensorMaker::kJax) {
      const nb::object jax = loaded_package("jax");
      if (jax.is_valid()) return jax.attr("numpy").attr("array")(array);
    }
    return array;
  }

  [[noreturn]] static void refuse_unhashable() {
    PyErr_Clear();
    raise(data_loss("a received key or set value cannot be hashed"));
  }

  ValueReader reader_;
  const Pickle pickle_;
  nb::object keeper_;
  DeviceReceiver devices_;
};

}  // namespace

TensorMaker tensor_maker_of(Framework framework) {
  switch (framework) {
    case Framework::kTorch:
      return TensorMaker::kTorch;
    case Framework::kJax:
      return TensorMaker::kJax;
    default:
      return TensorMaker::kNumpy;
  }
}

std::string names_of_tuple(PyObject* value) {
  const nb::handle type(reinterpret_cast<PyObject*>(Py_TYPE(value)));
  if (!PyTuple_Check(value) || PyTuple_CheckExact(value) || !nb::hasattr(value, "_fields") ||
      !nb::hasattr(type, "_make")) {
    return {};
  }
  return str_of(type.attr("__name__")) + " " +
         str_of(nb::str(" ").attr("join")(nb::handle(value).attr("_fields")));
}

DType numpy_bits_of(DType dtype) {
  if (dtype < DType::kBFloat16) return dtype;
  return dtype_size_bytes(dtype) == 2 ? DType::kUInt16 : DType::kUInt8;
}

nb::object torch_tensor_of(const nb::object& bits, DType dtype) {
  const nb::module_ torch = nb::module_::import_("torch");
  nb::object made = torch.attr("from_numpy")(bits);
  if (numpy_bits_of(dtype) == dtype) return made;
  return made.attr("view")(torch.attr(std::string(dtype_name(dtype)).c_str()));
}

void ValueEncoder::refuse(PyObject* value, const char* why) const {
  raise_type_error(format("{} holds a {}, {}", what_, type_name_of(value), why));
}

void ValueEncoder::encode(nb::handle value, const char* what, std::size_t depth) {
  what_ = what;
  encode_at(value.ptr(), depth);
}

void ValueEncoder::encode_at(PyObject* value, std::size_t depth) {
  if (value == Py_None) return writer_.none();
  if (PyBool_Check(value)) return writer_.boolean(value == Py_True);
  if (PyFloat_CheckExact(value)) return writer_.real(PyFloat_AS_DOUBLE(value));
  if (PyUnicode_Check(value)) return encode_text(value);
  const bool is_container =
      PyTuple_Check(value) || PyList_Check(value) || PyDict_Check(value) || PyAnySet_Check(value);
  if (is_container && depth + 1 >= kValueDepthMax) refuse_depth();
  if (PyTuple_Check(value)) return encode_tuple(value, depth);
  if (PyDict_Check(value)) return encode_dict(value, depth);
  if (PyList_Check(value)) {
    // A copy: Python code may run, and change the list.
    const nb::object items = owned(PyList_AsTuple(value));
    const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
    writer_.begin(ValueKind::kList, static_cast<std::size_t>(count));
    for (Py_ssize_t i = 0; i < count; ++i) encode_at(PyTuple_GET_ITEM(items.ptr(), i), depth + 1);
    return;
  }
  // NumPy's float64 is a Python float too, its bool and integers are not.
  if (PyArray_CheckScalar(value) || PyArray_Check(value)) {
    if (encode_array(value)) return;
  }
  if (PyFloat_Check(value)) return writer_.real(PyFloat_AS_DOUBLE(value));
  if (PyLong_Check(value)) return encode_integer(value);
  if (PyBytes_Check(value) || PyByteArray_Check(value) || PyMemoryView_Check(value)) {
    return encode_bytes(value);
  }
  if (PyAnySet_Check(value)) return encode_set(value, depth);
  if (PyComplex_Check(value)) {
    return writer_.complex({PyComplex_RealAsDouble(value), PyComplex_ImagAsDouble(value)});
  }
  if (encode_record(value, depth)) return;
  if (encode_array(value)) return;
  if (pickle_ == Pickle::kAllowed) return encode_pickled(value);
  refuse(
      value,
      "which has no encoding; send None, bool, int, float, str, bytes, lists, tuples, dicts, sets, "
      "arrays of numbers and registered dataclasses");
}

bool ValueEncoder::encode_record(PyObject* value, std::size_t depth) {
  const std::optional<Record> record = record_of(Py_TYPE(value));
  if (!record) return false;
  if (depth + 1 >= kValueDepthMax) refuse_depth();
  writer_.begin_record(record->names, record->fields.size());
  for (const nb::object& field : record->fields) {
    const nb::object held = owned(PyObject_GetAttr(value, field.ptr()));
    encode_at(held.ptr(), depth + 1);
  }
  return true;
}

void ValueEncoder::encode_pickled(PyObject* value) {
  const nb::object bytes =
      nb::module_::import_("reverie.trusted").attr("dumps_sent")(nb::handle(value), what_);
  writer_.pickled({reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes.ptr())),
                   static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))});
}

void ValueEncoder::refuse_depth() const {
  raise(invalid_argument("{} is nested more than {} deep; flatten it, or send it in parts", what_,
                         kValueDepthMax - 1));
}

void ValueEncoder::encode_integer(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) return writer_.integer(number);
  const nb::object magnitude = owned(PyNumber_Absolute(value));
  const auto bits = nb::cast<std::size_t>(magnitude.attr("bit_length")());
  const nb::object bytes = magnitude.attr("to_bytes")((bits + 7) / 8, "little");
  writer_.big_integer(overflow < 0,
                      {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes.ptr())),
                       static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))});
}

void ValueEncoder::encode_text(PyObject* value) {
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value, &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise(invalid_argument("{} holds the text {}; it must be text that UTF-8 can write", what_,
                           shown(value)));
  }
  writer_.text({text, static_cast<std::size_t>(size)});
}

void ValueEncoder::encode_bytes(PyObject* value) {
  const nb::object bytes =
      PyBytes_Check(value) ? nb::borrow(value) : owned(PyBytes_FromObject(value));
  writer_.bytes({reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(bytes.ptr())),
                 static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))});
}

void ValueEncoder::encode_tuple(PyObject* value, std::size_t depth) {
  const Py_ssize_t count = PyTuple_GET_SIZE(value);
  const std::string names = names_of_tuple(value);
  if (!names.empty()) {
    writer_.begin_named_tuple(names, static_cast<std::size_t>(count));
  } else {
    writer_.begin(ValueKind::kTuple, static_cast<std::size_t>(count));
  }
  for (Py_ssize_t i = 0; i < count; ++i) encode_at(PyTuple_GET_ITEM(value, i), depth + 1);
}

void ValueEncoder::encode_dict(PyObject* value, std::size_t depth) {
  const nb::object items = owned(PyDict_Items(value));
  const Py_ssize_t count = PyList_GET_SIZE(items.ptr());
  writer_.begin(ValueKind::kDict, static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    PyObject* const pair = PyList_GET_ITEM(items.ptr(), i);
    encode_at(PyTuple_GET_ITEM(pair, 0), depth + 1);
    encode_at(PyTuple_GET_ITEM(pair, 1), depth + 1);
  }
}

void ValueEncoder::encode_set(PyObject* value, std::size_t depth) {
  const nb::object items = owned(PySequence_Tuple(value));
  const Py_ssize_t count = PyTuple_GET_SIZE(items.ptr());
  writer_.begin(PyFrozenSet_Check(value) ? ValueKind::kFrozenSet : ValueKind::kSet,
                static_cast<std::size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) encode_at(PyTuple_GET_ITEM(items.ptr(), i), depth + 1);
}

bool ValueEncoder::encode_array(PyObject* value) {
  const bool is_numpy = PyArray_Check(value) || PyArray_CheckScalar(value);
  if (is_numpy) {
    const nb::object descr =
        PyArray_Check(value) ? nb::borrow(reinterpret_cast<PyObject*>(
                                   PyArray_DESCR(reinterpret_cast<PyArrayObject*>(value))))
                             : owned(reinterpret_cast<PyObject*>(PyArray_DescrFromScalar(value)));
    if (!dtype_of(reinterpret_cast<PyArray_Descr*>(descr.ptr()))) {
      if (pickle_ == Pickle::kAllowed) return false;
      raise_type_error(
          format("{} holds an array of dtype {}, which has no encoding; send numbers, "
                 "or a list",
                 what_, str_of(descr)));
    }
  }
  const LeafView view = reader_.read(value, what_);
  if (view.framework == Framework::kNone) return false;
  nb::object near;
  LeafView local = view;
  if (!view.is_on_cpu) {
    if (devices_ != nullptr && devices_->write(writer_, value, view)) return true;
    near = host_copy(value);
    local = reader_.read(near.ptr(), what_);
  }
  const std::size_t size =
      static_cast<std::size_t>(element_count(local.shape)) * dtype_size_bytes(local.dtype);
  const std::span<const std::byte> bytes(local.data, size);
  if (is_numpy && !PyArray_Check(value)) {
    writer_.scalar(local.dtype, bytes);
    return true;
  }
  const TensorMaker maker = tensor_maker_of(view.framework);
  if (size == 0) {
    writer_.lent_tensor(local.dtype, local.shape, {}, maker, nullptr);
  } else if (lends_ && size >= kLentBytesMin) {
    const nb::object kept = local.keep.is_valid() ? local.keep
                            : near.is_valid()     ? near
                                                  : nb::borrow(value);
    writer_.lent_tensor(local.dtype, local.shape, bytes, maker, lend_array(kept),
                        /*may_change=*/true);
  } else {
    // Copied while the interpreter's lock may be released: the array stays.
    const nb::object held = nb::borrow(value);
    auto copy = copied(local.data, size);
    const std::span<const std::byte> mine(static_cast<const std::byte*>(copy.get()), size);
    writer_.lent_tensor(local.dtype, local.shape, mine, maker, std::move(copy));
  }
  return true;
}

nb::object decode_value(const Payload& payload, Pickle pickle, DeviceTensors* devices) {
  return Decoder(payload, pickle, devices).decode_all();
}

nb::object arguments_of(Peer& peer, const Request& request, Pickle pickle, DeviceTensors* devices) {
  const auto refuse = [&](const std::string& why) {
    peer.fail(request.id, {StatusCode::kInvalidArgument, "",
                           format("the arguments of '{}' {}", request.function, why), ""});
  };
  try {
    nb::object value = decode_value(request.message.payload, pickle, devices);
    // A hostile peer may have sent anything.
    if (PyTuple_CheckExact(value.ptr()) && PyTuple_GET_SIZE(value.ptr()) == 2 &&
        PyTuple_CheckExact(PyTuple_GET_ITEM(value.ptr(), 0)) &&
        PyDict_CheckExact(PyTuple_GET_ITEM(value.ptr(), 1))) {
      return value;
    }
    refuse("are not a tuple and a dict");
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) {  // Ctrl-C
      refuse(format("cannot be read: {}", type_name_of(error.value().ptr())));
      throw;
    }
    refuse(format("cannot be read: {}", str_of(error.value())));
  }
  return {};
}

}  // namespace reverie::python
