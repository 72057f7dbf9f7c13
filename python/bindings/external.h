// External columns in Python: rows that lie in files, written by name and read by what the user
// gives as `files=`.
#pragma once

#include <memory>
#include <optional>

#include <nanobind/nanobind.h>

#include "reverie/client/insert_rows.h"
#include "reverie/record/external_files.h"

namespace reverie::python {

// Files below a folder (str), or what a function of reverie/external.py says; null for None.
std::shared_ptr<ExternalFiles> external_files(nanobind::handle given);

// What a leaf of class `External` (reverie/external.py) says; none for any other leaf. The shape
// lies in `shape`, the name in `column`.
std::optional<RowsColumn> external_column(nanobind::handle leaf, nanobind::handle external_type,
                                          std::string_view name, std::vector<std::int64_t>& shape);

}  // namespace reverie::python
