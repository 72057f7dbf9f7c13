// The interpreter's lock: letting go of it, and taking it where C++ calls back into Python.
//
// Before 3.14 CPython ends a thread that asks for the lock while the interpreter finalizes, by
// unwinding its stack (pthread_exit). C++ frames cannot be left so: a destructor would end the
// program, and Python's objects would be released without the lock. So an unwind that reaches a
// frame of this module stops there (gil.cc), and the thread sleeps until the process ends, as it
// does from 3.14 on. It holds no lock of the library, since nothing that runs under one takes the
// interpreter's.
#pragma once

#include <nanobind/nanobind.h>

namespace reverie::python {

// Lets go of the lock for a scope. Requires that the thread holds it.
class GilReleased {
 public:
  GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;
  // Does not return on a thread that comes back while the interpreter finalizes.
  ~GilReleased();

 private:
  PyThreadState* state_;
};

// Holds the lock for a scope on a thread of Python's: takes it back where a GilReleased let it go.
class GilHeld {
 public:
  // Does not return while the interpreter finalizes on another thread.
  GilHeld();
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;
  ~GilHeld();

 private:
  PyThreadState* state_;  // null where the lock was held anyway
};

// Holds the lock for a scope on any thread, one of the library's included, if it can be had: not
// once the program ends. A thread of the library that waits for the lock then is waited for, so
// that no destructor joins one that never wakes.
class GilAnywhere {
 public:
  GilAnywhere();
  GilAnywhere(const GilAnywhere&) = delete;
  GilAnywhere& operator=(const GilAnywhere&) = delete;
  ~GilAnywhere();

  explicit operator bool() const { return is_held_; }

 private:
  PyThreadState* state_ = nullptr;
  PyGILState_STATE ensured_{};
  bool is_foreign_ = false;  // the thread was not started by Python
  bool is_held_ = false;
};

// Whether the thread holds the lock.
bool holds_gil();

// Never returns: for a thread that comes to what the program's end has already ended. Requires that
// it holds the lock, which it releases.
[[noreturn]] void sleep_until_the_end();

// Has GilAnywhere refuse threads of the library from the program's end on. Once, in the module.
void guard_exit();

}  // namespace reverie::python
