// The native environments that this process knows.
#pragma once

#include "reverie/env/native_registry.h"

namespace reverie::python {

// What ships, and what plugins have added. Never destroyed: pools may outlive the interpreter.
NativeRegistry& native_registry();

}  // namespace reverie::python
