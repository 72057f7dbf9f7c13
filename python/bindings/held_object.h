// HeldObject: a Python object that any thread may release.
#pragma once

#include <utility>

#include <nanobind/nanobind.h>

#include "python/bindings/gil.h"

namespace reverie::python {

// Left to the program's end where the interpreter's lock cannot be had any more.
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

  // With the interpreter's lock held.
  const nanobind::object& get() const { return object_; }

 private:
  nanobind::object object_;
};

}  // namespace reverie::python
