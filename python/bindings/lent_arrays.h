// Arrays that messages refer to, until these are gone.
#pragma once

#include <memory>

#include <nanobind/nanobind.h>

namespace reverie::python {

namespace nb = nanobind;

// Keeps the array until a message that refers to it has gone.
std::shared_ptr<const void> lend_array(nb::object array);
// Releases arrays that were lent. Called wherever calls begin and end. Requires the interpreter's
// lock.
void drop_lent_arrays();

}  // namespace reverie::python
