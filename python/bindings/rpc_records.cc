#include "python/bindings/rpc_records.h"

#include <unordered_map>
#include <utility>

#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// By name. Never destroyed: the interpreter may be gone when statics are destroyed.
std::unordered_map<std::string, Record>& records() {
  static auto* const instance = new std::unordered_map<std::string, Record>;
  return *instance;
}

std::string place_of(const nb::object& type) {
  return str_of(type.attr("__module__")) + "." + str_of(type.attr("__qualname__"));
}

}  // namespace

void register_record(nb::object type, const std::string& name,
                     const std::vector<std::string>& fields,
                     const std::vector<bool>& are_arguments) {
  Record record{std::move(type), name, {}, are_arguments};
  for (const std::string& field : fields) {
    record.names += " " + field;
    record.fields.push_back(nb::str(field.c_str()));
  }
  const auto found = records().find(name);
  if (found != records().end() && !found->second.type.is(record.type)) {
    // A reloaded module defines its classes again.
    const std::string other = place_of(found->second.type);
    const std::string mine = place_of(record.type);
    if (other != mine) {
      raise(already_exists("name is '{}', by which {} travels; choose another name for {}", name,
                           other, mine));
    }
  }
  std::erase_if(records(), [&](const auto& one) { return one.second.type.is(record.type); });
  records().insert_or_assign(name, std::move(record));
}

std::optional<Record> record_of(PyTypeObject* type) {
  for (const auto& [name, record] : records()) {
    if (record.type.ptr() == reinterpret_cast<PyObject*>(type)) return record;
  }
  return std::nullopt;
}

Record record_named(std::span<const std::byte> names, std::size_t count) {
  const std::string sent(reinterpret_cast<const char*>(names.data()), names.size());
  const std::string name = sent.substr(0, sent.find(' '));
  const auto found = records().find(name);
  if (found == records().end()) {
    raise_type_error(
        format("an instance of the dataclass '{}' came, which is not known here; call "
               "reverie.register_dataclass({}) in this process too",
               name, name));
  }
  const Record& known = found->second;
  if (known.names != sent || known.fields.size() != count) {
    raise_type_error(format(
        "an instance of a dataclass came with the fields '{}'; here they are '{}': both ends "
        "need the same class",
        sent, known.names));
  }
  return known;
}

nb::object make_record(const Record& record, const std::vector<nb::object>& values) {
  nb::dict arguments;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (record.is_argument[i]) arguments[record.fields[i]] = values[i];
  }
  try {
    nb::object made = record.type(**arguments);
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (record.is_argument[i]) continue;
      // The way in which dataclasses set fields of frozen instances.
      if (PyObject_GenericSetAttr(made.ptr(), record.fields[i].ptr(), values[i].ptr()) < 0) {
        raise_pending();
      }
    }
    return made;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C in its code
    raise(data_loss("an instance of the dataclass '{}' that came cannot be made: {}: {}",
                    record.names.substr(0, record.names.find(' ')),
                    type_name_of(error.value().ptr()), str_of(error.value())));
  }
}

}  // namespace reverie::python
