// The native environments that this process knows.
#pragma once

#include "reverie/env/native_registry.h"

namespace reverie::python {

// Those included, and those of plugins. Never destroyed: pools may outlive the interpreter.
NativeRegistry& native_registry();

}  // namespace reverie::python
