// Tables as Python describes them: dicts of plain values, both ways.
#pragma once

#include <nanobind/nanobind.h>

#include "reverie/record/table_info.h"
#include "reverie/service/blocking.h"

namespace reverie::python {

namespace nb = nanobind;

// From what reverie.Table makes of itself.
TableOptions table_options(nb::dict table);
// The same keys, and the counts besides; one for each table.
nb::list table_infos(ReplayService& service, const WaitOptions& wait = {});

}  // namespace reverie::python
