// The components that tables of this process can be made of.
#pragma once

#include "reverie/replay/registry.h"

namespace reverie::python {

// Those included, and those of plugins. Never destroyed: tables may outlive the interpreter.
Registry& registry();

}  // namespace reverie::python
