// The interpreter's lock: releases it, and takes it where C++ calls back into Python.
//
// Before 3.14 CPython ends a thread that requests the lock while the interpreter finalizes, by
// unwinding its stack (pthread_exit). C++ frames cannot be left like that: a destructor would end
// the program, and Python's objects would be released without the lock. So an unwind that reaches a
// frame of this module stops there (gil.cc), and the thread sleeps until the process ends, as it
// does from 3.14 on. It holds no lock of the library, since no code that holds one takes the
// interpreter's.
#pragma once

#include <nanobind/nanobind.h>

namespace reverie::python {

// Releases the lock for a scope. Requires that the thread holds it.
class GilReleased {
 public:
  GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;
  // Does not return on a thread that returns while the interpreter finalizes.
  ~GilReleased();

 private:
  PyThreadState* state_;
};

// Holds the lock for a scope on a Python thread: takes it back if a GilReleased has released it.
class GilHeld {
 public:
  // Does not return while the interpreter finalizes on another thread.
  GilHeld();
  GilHeld(const GilHeld&) = delete;
  GilHeld& operator=(const GilHeld&) = delete;
  ~GilHeld();

 private:
  PyThreadState* state_;  // null if the lock was held already
};

// Holds the lock for a scope on any thread, the library's included, if possible: not once the
// program ends. The end waits for a library thread that is waiting for the lock, so that no
// destructor joins a thread that never wakes.
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

// Never returns: for a thread that uses an object that the program's end has closed. Requires that
// it holds the lock, which it releases.
[[noreturn]] void sleep_until_the_end();

// Whether the program's end has begun: GilAnywhere refuses the library's threads.
bool program_has_ended();

// Makes GilAnywhere refuse the library's threads once the program ends. Call once, in the module.
void guard_exit();

}  // namespace reverie::python
