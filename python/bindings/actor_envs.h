// Environments of Python for a training: reverie/agents/envs.py makes and steps them, an actor's
// thread calls it.
#pragma once

#include <nanobind/nanobind.h>

#include "reverie/agents/algorithms.h"

namespace reverie::python {

namespace nb = nanobind;

// `source` is an EnvSource of Python's. What it raises comes as INTERNAL with the text under which
// the source keeps the exception. Requires the interpreter's lock; what is made does not.
EnvSource python_env_source(nb::object source);

}  // namespace reverie::python
