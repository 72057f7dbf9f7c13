// Python environments for a training: reverie/agents/envs.py makes and steps them, called by an
// actor's thread.
#pragma once

#include <nanobind/nanobind.h>

#include "reverie/agents/algorithms.h"

namespace reverie::python {

namespace nb = nanobind;

// `source` is Python's EnvSource. An exception that it raises becomes INTERNAL with the text under
// which the source keeps it. Requires the interpreter's lock; the result does not.
EnvSource python_env_source(nb::object source);

}  // namespace reverie::python
