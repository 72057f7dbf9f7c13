// The components that tables of this process can be made of.
#pragma once

#include "reverie/replay/registry.h"

namespace reverie::python {

// What ships, and what plugins have added. Never destroyed: tables may outlive the interpreter.
Registry& registry();

}  // namespace reverie::python
