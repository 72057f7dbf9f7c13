// Dataclasses whose instances travel between peers: reverie.register_dataclass.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

namespace reverie::python {

namespace nb = nanobind;

// Everything in this file requires the interpreter's lock.
struct Record {
  nb::object type;
  std::string names;  // the class's name and its fields' names, separated by spaces
  std::vector<nb::object> fields;
  std::vector<bool> is_argument;  // whether the class is called with the field
};

// Instances of `type` are sent under `name`. A received instance is made by `type(**fields)` from
// the fields that `are_arguments`; the others are set afterwards. Raises AlreadyExistsError if
// another class has the name.
void register_record(nb::object type, const std::string& name,
                     const std::vector<std::string>& fields,
                     const std::vector<bool>& are_arguments);
std::optional<Record> record_of(PyTypeObject* type);
// Raises TypeError if no class is registered by that name, or one with other fields.
Record record_named(std::span<const std::byte> names, std::size_t count);
// `values` are those of the fields. Raises DataLossError if the class refuses them.
nb::object make_record(const Record& record, const std::vector<nb::object>& values);

}  // namespace reverie::python
