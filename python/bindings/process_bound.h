// What a Python object holds that belongs to this process, since threads and locks are behind it.
//
//     self.group->membership()                                       refused in a forked child
//     without_gil([&, &group = *self.group] { group.update(); });    the same, before the lock goes
//     if (Group* const group = self.group.here()) ...                nothing to end in a child
#pragma once

#include <string_view>
#include <utility>

#include "python/bindings/convert.h"
#include "reverie/base/fork.h"

namespace reverie::python {

// As thread-safe as the held object, which must leave its threads to the parent when it is
// destroyed in a child.
template <typename Pointer>
class ProcessBound {
 public:
  // `what` names it in errors, and outlives it.
  ProcessBound(std::string_view what, Pointer held) : what_(what), held_(std::move(held)) {}

  // Raise in a forked child, so they require the interpreter's lock.
  auto& operator*() const { return *pointer(); }
  auto* operator->() const { return &*pointer(); }
  const Pointer& pointer() const {
    unwrap(guard_.check(what_));
    return held_;
  }
  // Null in a forked child.
  auto* here() const { return guard_.check(what_).ok() ? held_.get() : nullptr; }

 private:
  std::string_view what_;
  Pointer held_;
  ForkGuard guard_;
};

}  // namespace reverie::python
