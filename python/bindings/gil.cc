#include "python/bindings/gil.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>
#include <utility>

#include <dlfcn.h>
#include <unistd.h>
#include <unwind.h>

#include "python/bindings/log_lines.h"
#include "reverie/base/fork.h"

namespace reverie::python {
namespace {

namespace nb = nanobind;

// The state of a thread while it has released the lock. Not taken from the interpreter, which may
// be gone.
thread_local PyThreadState* released = nullptr;

bool is_finalizing() {
#if defined(Py_LIMITED_API)
  // Not in the stable ABI, but exported: by another name before 3.13.
  using Ask = int (*)();
  static const auto ask = reinterpret_cast<Ask>(
      dlsym(RTLD_DEFAULT, Py_Version >= 0x030D0000 ? "Py_IsFinalizing" : "_Py_IsFinalizing"));
  return ask != nullptr && ask() != 0;
#elif PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// --- Threads of the library that hold the lock, or wait for it.

std::atomic<bool> program_ends{false};
std::atomic<int> foreign_count{0};

bool enter_foreign() {
  foreign_count.fetch_add(1);
  if (!program_ends.load()) return true;
  foreign_count.fetch_sub(1);
  return false;
}

// Runs when the program ends, before the interpreter finalizes.
void end_program(std::uint32_t generation) {
  constexpr auto kWaitMax = std::chrono::milliseconds(500);
  constexpr auto kPause = std::chrono::microseconds(100);
  pass_log_lines();
  program_ends.store(true);
  if (generation != fork_generation()) return;  // those threads are the parent's
  const auto until = std::chrono::steady_clock::now() + kWaitMax;
  while (foreign_count.load() > 0 && std::chrono::steady_clock::now() < until) {
    const GilReleased released_meanwhile;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

GilReleased::GilReleased() : state_(PyEval_SaveThread()) {
  released = state_;
}

GilReleased::~GilReleased() {
  released = nullptr;
  PyEval_RestoreThread(state_);
}

GilHeld::GilHeld() : state_(std::exchange(released, nullptr)) {
  if (state_ != nullptr) PyEval_RestoreThread(state_);
}

GilHeld::~GilHeld() {
  if (state_ != nullptr) released = PyEval_SaveThread();
}

GilAnywhere::GilAnywhere() {
  if (Py_IsInitialized() == 0) return;  // set from the first step of finalization on
  if (released == nullptr && !holds_gil()) {
    is_foreign_ = is_held_ = enter_foreign();
    if (is_held_) ensured_ = PyGILState_Ensure();
    return;
  }
  state_ = std::exchange(released, nullptr);
  if (state_ != nullptr) PyEval_RestoreThread(state_);
  is_held_ = true;
}

GilAnywhere::~GilAnywhere() {
  if (is_foreign_) {
    PyGILState_Release(ensured_);
    foreign_count.fetch_sub(1);
  } else if (state_ != nullptr) {
    released = PyEval_SaveThread();
  }
}

bool holds_gil() {
  // Without an interpreter the check alone would return true.
  if (PyGILState_GetThisThreadState() == nullptr) return false;
#if defined(Py_LIMITED_API)
  // Not in the stable ABI, but in every Python since 3.4.
  using Ask = int (*)();
  static const auto ask = reinterpret_cast<Ask>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  return ask == nullptr || ask() != 0;
#else
  return PyGILState_Check() != 0;
#endif
}

void sleep_until_the_end() {
  const GilReleased released_for_good;
  while (true) pause();
}

bool program_has_ended() {
  return program_ends.load();
}

void guard_exit() {
  nb::module_::import_("atexit").attr("register")(
      nb::cpp_function([generation = fork_generation()] { end_program(generation); }));
}

}  // namespace reverie::python

// --- Stopping an unwind.
//
// The unwinder calls the personality routine of each C++ frame before it runs code of the frame.
// The linker replaces the standard library's by this one, in all frames of this module
// (--wrap, in cmake/python.cmake): those that took the lock, and those that called into Python,
// whose frames above were unwound.

extern "C" {

_Unwind_Reason_Code __real___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context);

_Unwind_Reason_Code __wrap___gxx_personality_v0(int version, _Unwind_Action actions,
                                                _Unwind_Exception_Class exception_class,
                                                _Unwind_Exception* exception,
                                                _Unwind_Context* context) {
  if ((actions & _UA_FORCE_UNWIND) != 0 && reverie::python::is_finalizing()) {
    while (true) pause();
  }
  return __real___gxx_personality_v0(version, actions, exception_class, exception, context);
}

}  // extern "C"
