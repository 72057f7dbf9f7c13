// External columns in Python: rows that are in files, written by name and read with the user's
// `files=`.
#pragma once

#include <memory>
#include <optional>

#include <nanobind/nanobind.h>

#include "reverie/client/insert_rows.h"
#include "reverie/record/external_files.h"

namespace reverie::python {

// Files below a folder (str), or a function of reverie/external.py, which the caller keeps; null
// for None.
std::shared_ptr<ExternalFiles> external_files(nanobind::handle given);

// The column of a leaf of class `External` (reverie/external.py); none for any other leaf. `shape`
// and `column` own the shape and the name.
std::optional<RowsColumn> external_column(nanobind::handle leaf, nanobind::handle external_type,
                                          std::string_view name, std::vector<std::int64_t>& shape);

}  // namespace reverie::python
