// Converts tables to and from Python's form: dicts of plain values.
#pragma once

#include <nanobind/nanobind.h>

#include "reverie/record/table_info.h"
#include "reverie/service/blocking.h"

namespace reverie::python {

namespace nb = nanobind;

// From the dict of a reverie.Table.
TableOptions table_options(nb::dict table);
// One dict per table, with the same keys and the counts.
nb::list table_infos(ReplayService& service, const WaitOptions& wait = {});

}  // namespace reverie::python
