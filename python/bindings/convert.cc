#include "python/bindings/convert.h"

#include <cmath>
#include <vector>

#include "python/bindings/log_lines.h"
#include "python/bindings/numpy_api.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Never destroyed: the interpreter may be gone when the library's statics are.
struct ErrorClasses {
  std::vector<nb::object> by_code;
  nb::object type_error;
  nb::object missing_package;
};

ErrorClasses& classes() {
  static auto* const instance = new ErrorClasses;
  return *instance;
}

nb::object class_of(StatusCode code) {
  const auto index = static_cast<std::size_t>(code);
  const auto& by_code = classes().by_code;
  if (index < by_code.size() && by_code[index].is_valid()) return by_code[index];
  return nb::borrow(PyExc_RuntimeError);
}

[[noreturn]] void raise_as(const nb::object& type, std::string_view text) {
  PyErr_SetObject(type.ptr(), text_object(text).ptr());
  raise_pending();
}

}  // namespace

nb::object text_object(std::string_view text) {
  return owned(PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "replace"));
}

void set_error_classes(nb::dict by_code, nb::object type_error, nb::object missing_package) {
  for (auto [code, type] : by_code) {
    const auto index = nb::cast<std::size_t>(code);
    if (index >= classes().by_code.size()) classes().by_code.resize(index + 1);
    classes().by_code[index] = nb::borrow(type);
  }
  classes().type_error = std::move(type_error);
  classes().missing_package = std::move(missing_package);
}

void raise_pending() {
  throw nb::python_error();
}

void raise(const Status& status) {
  if (PyErr_Occurred() != nullptr) raise_pending();
  raise_as(class_of(status.code()), status.message());
}

nb::object loaded_package(const char* name) {
  PyObject* const module = PyDict_GetItemString(PyImport_GetModuleDict(), name);
  return module == nullptr ? nb::object() : nb::borrow(module);
}

void raise_type_error(const std::string& text) {
  const nb::object& type = classes().type_error;
  raise_as(type.is_valid() ? type : nb::borrow(PyExc_TypeError), text);
}

void raise_missing_package(const std::string& text) {
  const nb::object& type = classes().missing_package;
  raise_as(type.is_valid() ? type : nb::borrow(PyExc_ImportError), text);
}

nb::object make_error(const Status& status) {
  return class_of(status.code())(text_object(status.message()));
}

void raise_object(const nb::object& error) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
  raise_pending();
}

std::string str_of(nb::handle object) {
  const nb::object text = owned(PyObject_Str(object.ptr()));
  const nb::object encoded =
      owned(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "backslashreplace"));
  return {PyBytes_AS_STRING(encoded.ptr()),
          static_cast<std::size_t>(PyBytes_GET_SIZE(encoded.ptr()))};
}

std::string shown(nb::handle object) {
  constexpr std::size_t kShownMax = 120;
  std::string text;
  try {
    text = str_of(nb::repr(object));
  } catch (nb::python_error& error) {  // what a message shows must not raise, except for Ctrl-C
    if (!error.matches(PyExc_Exception)) throw;
    return format("a {}", type_name_of(object.ptr()));
  }
  if (text.size() <= kShownMax) return text;
  std::size_t end = kShownMax;
  while ((static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;  // within a character
  return text.substr(0, end) + "...";
}

std::string_view text_argument(std::string_view name, nb::handle value) {
  if (!PyUnicode_Check(value.ptr())) {
    raise_type_error(format("{} is {}; it must be a str", name, shown(value)));
  }
  Py_ssize_t size = 0;
  const char* const text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise(invalid_argument("{} is {}; it must be text that UTF-8 can write", name, shown(value)));
  }
  return {text, static_cast<std::size_t>(size)};
}

bool flag_argument(std::string_view name, nb::handle value) {
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
  if (Py_TYPE(value.ptr()) == &PyBoolArrType_Type) return PyObject_IsTrue(value.ptr()) == 1;
  raise_type_error(format("{} is {}; it must be True or False", name, shown(value)));
}

double number_argument(std::string_view name, nb::handle value) {
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1.0 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    raise_type_error(format("{} is {}; it must be a number", name, shown(value)));
  }
  return number;
}

std::int64_t checked_integer(std::string_view name, nb::handle value, std::int64_t least,
                             std::int64_t most) {
  if (PyIndex_Check(value.ptr()) == 0 || PyBool_Check(value.ptr())) {
    raise_type_error(format("{} is {}; it must be an integer", name, shown(value)));
  }
  const nb::object number = nb::steal(PyNumber_Index(value.ptr()));
  if (!number.is_valid()) {  // an array of several elements
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) raise_pending();  // Ctrl-C in its code
    PyErr_Clear();
    raise_type_error(format("{} is {}; it must be an integer", name, shown(value)));
  }
  int overflow = 0;
  const long long given = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (overflow != 0 || given < least || given > most) {
    // The upper bound of int64 is only named to a caller who exceeds it.
    const bool is_too_large = overflow > 0 || given > most;
    const std::string bound = most == std::numeric_limits<std::int64_t>::max() && !is_too_large
                                  ? format("at least {}", least)
                                  : format("between {} and {}", least, most);
    raise(invalid_argument("{} is {}; it must be {}", name, shown(number), bound));
  }
  return given;
}

std::optional<Duration> timeout_argument(nb::handle timeout_s) {
  if (timeout_s.is_none()) return std::nullopt;
  const double given = number_argument("timeout_s", timeout_s);
  if (std::isnan(given) || given < 0) {
    raise(invalid_argument(
        "timeout_s is {}; it must be at least 0 (now or never), or None to wait without limit",
        given));
  }
  return seconds(given);
}

TimePoint deadline(nb::handle timeout_s) {
  const std::optional<Duration> timeout = timeout_argument(timeout_s);
  return timeout ? Clock::system().now() + *timeout : TimePoint::max();
}

std::string column_text(std::string_view path) {
  return path.empty() ? std::string("the array") : format("column '{}'", path);
}

WaitOptions Waiting::for_signals() {
  WaitOptions options;
  options.interrupted = [] {
    const GilHeld held;
    return PyErr_Occurred() != nullptr || PyErr_CheckSignals() != 0;
  };
  return options;
}

WaitOptions Waiting::options() {
  WaitOptions options = for_signals();
  options.still_waiting = [this](double waited_s) { report(waited_s); };
  return options;
}

void Waiting::report(double waited_s) const {
  const Result<BlockedReport> why = why_blocked_and_wait(*service_, table_);
  if (!why.ok()) return;
  const GilHeld held;
  log_here(LogQueue::kWarning,
           format("waiting for {:.0f} s; {}", waited_s, why->text(std::string(table_))));
}

}  // namespace reverie::python
