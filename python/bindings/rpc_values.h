// Converts Python values to and from messages between peers: docs/formats/values.md.
#pragma once

#include <memory>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "reverie/rpc/message.h"
#include "reverie/rpc/value_reader.h"
#include "reverie/rpc/value_writer.h"

namespace reverie::python {

namespace nb = nanobind;

// Requires the interpreter's lock, like everything in this file.
class ValueEncoder {
 public:
  // With `lends`, large arrays are not copied: the payload refers to them, and no thread may change
  // them before it has been sent.
  ValueEncoder(Payload& payload, LeafReader& reader, bool lends)
      : writer_(payload), reader_(reader), lends_(lends) {}

  // Raises TypeError for a value without an encoding, ValueError if it is nested too deeply. `what`
  // names the outermost value in messages.
  void encode(nb::handle value, const char* what);

 private:
  void encode_at(PyObject* value, std::size_t depth);
  void encode_integer(PyObject* value);
  void encode_text(PyObject* value);
  void encode_bytes(PyObject* value);
  void encode_tuple(PyObject* value, std::size_t depth);
  void encode_dict(PyObject* value, std::size_t depth);
  void encode_set(PyObject* value, std::size_t depth);
  // False if it is not an array.
  bool encode_array(PyObject* value);
  [[noreturn]] void refuse(PyObject* value, const char* why) const;

  ValueWriter writer_;
  LeafReader& reader_;
  const bool lends_;
  const char* what_ = "";
};

// The single value of a payload. Arrays view the payload's memory, and keep it alive. Raises
// DataLossError for malformed values.
nb::object decode_value(const Payload& payload);

// Releases arrays that were lent. Called wherever calls begin and end.
void drop_lent_arrays();

}  // namespace reverie::python
