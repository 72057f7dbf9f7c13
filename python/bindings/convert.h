// Converts between C++ and Python conventions: errors, the interpreter's lock, deadlines.
//
// Only unwrap() and the raise functions raise, and only without_gil() releases the
// lock.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>

#include "python/bindings/gil.h"
#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/base/waiting.h"
#include "reverie/service/blocking.h"

namespace reverie::python {

namespace nb = nanobind;

// Sets the exception class of each code; reverie/errors.py calls it when it is imported.
// `type_error` is raised for a value of a type that cannot be stored, `missing_package` if an
// optional package is needed.
void set_error_classes(nb::dict by_code, nb::object type_error, nb::object missing_package);

// Raises the exception for `status`; an exception that is already set takes precedence. Requires
// !status.ok().
[[noreturn, gnu::cold]] void raise(const Status& status);
[[noreturn, gnu::cold]] void raise_type_error(const std::string& text);
// A package that the program has loaded, or an invalid object: nothing is imported.
nb::object loaded_package(const char* name);
[[noreturn, gnu::cold]] void raise_missing_package(const std::string& text);
// Raises the exception that Python's C API has set.
[[noreturn, gnu::cold]] void raise_pending();
// An exception object for `status`, for callers that add to it before they raise it.
nb::object make_error(const Status& status);
[[noreturn, gnu::cold]] void raise_object(const nb::object& error);

inline void unwrap(const Status& status) {
  if (!status.ok()) raise(status);
}

template <typename T>
T unwrap(Result<T> result) {
  if (!result.ok()) raise(result.status());
  return std::move(result).value();
}

// A new reference from the C API, or the exception that it set.
inline nb::object owned(PyObject* object) {
  if (object == nullptr) raise_pending();
  return nb::steal(object);
}

// Runs `f` without the interpreter's lock. An exception that was set meanwhile (Ctrl-C) is raised,
// whatever `f` returned.
template <typename F>
auto without_gil(F&& f) -> std::invoke_result_t<F> {
  if constexpr (std::is_void_v<std::invoke_result_t<F>>) {
    {
      const GilReleased released;
      f();
    }
    if (PyErr_Occurred() != nullptr) raise_pending();
  } else {
    auto result = [&] {
      const GilReleased released;
      return f();
    }();
    if (PyErr_Occurred() != nullptr) raise_pending();
    return result;
  }
}

// Waits without the interpreter's lock, in slices, between which it checks for Ctrl-C:
// `wait(until)` waits at most until then, and returns whether the wait is over. False if it is not
// by `deadline`.
template <typename Wait>
bool wait_in_slices(TimePoint deadline, Wait wait) {
  Clock& clock = Clock::system();
  while (true) {
    const TimePoint until = std::min(deadline, clock.now() + kInterruptInterval);
    const bool is_there = without_gil([&] { return wait(until); });
    if (PyErr_CheckSignals() != 0) raise_pending();
    if (is_there) return true;
    if (clock.now() >= deadline) return false;
  }
}

// Runs `f(wait)`. A brief call keeps the interpreter's lock unless it must wait: beside a
// thread of Python code it takes up to 5 ms to get the lock back, and a brief call takes
// microseconds. A call is brief if it copies little and works on few items, in a store in this
// process.
template <typename F>
auto without_gil_in_waits(bool is_brief, WaitOptions wait, F&& f) {
  if (!is_brief) return without_gil([&] { return f(wait); });
  std::optional<GilReleased> released;
  wait.wait_begins = [&released] { released.emplace(); };
  wait.wait_ends = [&released] { released.reset(); };
  auto result = f(wait);
  if (PyErr_Occurred() != nullptr) raise_pending();
  return result;
}
inline constexpr std::size_t kBriefBytes = kLongCopyBytes;
inline constexpr std::size_t kBriefItems = 1024;

// A str of UTF-8, in which what is no UTF-8 is replaced.
nb::object text_object(std::string_view text);
// str(object), as UTF-8.
std::string str_of(nb::handle object);
// repr(object) for a message, cut short; its type where repr() raises.
std::string shown(nb::handle object);

// --- Arguments, checked so that errors name them.

// The largest batch that can be requested.
inline constexpr std::int64_t kBatchMax = std::int64_t{1} << 31;

// A str; valid while `value` is.
std::string_view text_argument(std::string_view name, nb::handle value);
double number_argument(std::string_view name, nb::handle value);
// True or False, from Python or NumPy.
bool flag_argument(std::string_view name, nb::handle value);
std::int64_t checked_integer(std::string_view name, nb::handle value, std::int64_t least,
                             std::int64_t most);
// An integer in [least, most]; without `most`, in the range of `T` and of int64.
template <typename T = std::int64_t>
T integer_argument(std::string_view name, nb::handle value, std::int64_t least,
                   std::type_identity_t<T> most = std::numeric_limits<T>::max()) {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t bound =
      std::in_range<std::int64_t>(most) ? static_cast<std::int64_t>(most) : kMost;
  return static_cast<T>(checked_integer(name, value, least, bound));
}
// The argument "timeout_s" of every waiting call: None waits without limit, 0 does not wait.
// Refuses negative values and those that are not numbers.
std::optional<Duration> timeout_argument(nb::handle timeout_s);
// The deadline for that timeout, from now.
TimePoint deadline(nb::handle timeout_s);

// A name for messages: "column 'obs/position'", or "the array" if the nest is a single one.
std::string column_text(std::string_view path);

// What a call does while it waits: checks for signals, and logs why it waits.
//
// Lives on the stack of the call. REQUIRES: `service` and `table` outlive it.
class Waiting {
 public:
  Waiting(ReplayService& service, std::string_view table) : service_(&service), table_(table) {}
  WaitOptions options();
  // For a wait that is not on a table: only checks for signals.
  static WaitOptions for_signals();
  // Sets the table to report on.
  void set_table(std::string_view table) { table_ = table; }

 private:
  void report(double waited_s) const;

  ReplayService* service_;
  std::string_view table_;
};

}  // namespace reverie::python
