// HeldObject: a Python object that any thread may release.
#pragma once

#include <utility>

#include <nanobind/nanobind.h>

#include "python/bindings/gil.h"

namespace reverie::python {

// Leaked if the interpreter's lock cannot be taken any more.
class HeldObject {
 public:
  explicit HeldObject(nanobind::object object) : object_(std::move(object)) {}
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  ~HeldObject() {
    const GilAnywhere held;
    if (held) {
      object_.reset();
    } else {
      (void)object_.release();
    }
  }

  // Requires the interpreter's lock.
  const nanobind::object& get() const { return object_; }

 private:
  nanobind::object object_;
};

}  // namespace reverie::python
