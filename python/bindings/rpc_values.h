// Converts Python values to and from messages between peers: docs/formats/values.md.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include <nanobind/nanobind.h>

#include "python/bindings/device_arrays.h"
#include "python/bindings/leaf_view.h"
#include "python/bindings/lent_arrays.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/payload.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie::python {

namespace nb = nanobind;

// Whether values without an encoding are pickled, and received pickles are read. Reading one runs
// code of its sender's choice: only allowed if a program says so and all its peers share a token.
enum class Pickle : bool { kRefused, kAllowed };

// Requires the interpreter's lock, like everything in this file.
class ValueEncoder {
 public:
  // With `lends`, large arrays are not copied: the payload refers to them, and no thread may change
  // them before it has been sent. Without `devices`, tensors of GPUs are sent from the CPU.
  ValueEncoder(Payload& payload, LeafReader& reader, bool lends, Pickle pickle,
               DeviceSender* devices = nullptr)
      : writer_(payload), reader_(reader), lends_(lends), pickle_(pickle), devices_(devices) {}

  // Raises TypeError for a value without an encoding, ValueError if it is nested too deeply. `what`
  // names the outermost value in messages, `depth` is the number of containers that hold it.
  void encode(nb::handle value, const char* what, std::size_t depth = 0);

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
  // False if it is no instance of a registered class.
  bool encode_record(PyObject* value, std::size_t depth);
  void encode_pickled(PyObject* value);
  [[noreturn]] void refuse(PyObject* value, const char* why) const;
  [[noreturn]] void refuse_depth() const;

  ValueWriter writer_;
  LeafReader& reader_;
  const bool lends_;
  const Pickle pickle_;
  DeviceSender* const devices_;
  const char* what_ = "";
};

// The single value of a payload. Arrays view the payload's memory, and keep it alive. Raises
// DataLossError for malformed values, TypeError for a pickle that is refused and for an instance of
// a class that is not registered. Without `devices`, so are tensors in the memory of a device.
nb::object decode_value(const Payload& payload, Pickle pickle, DeviceTensors* devices = nullptr);
// (args, kwargs) of a request, a tuple and a dict; invalid for anything else, after the caller got
// the error.
nb::object arguments_of(Peer& peer, const Request& request, Pickle pickle, DeviceTensors* devices);

// A named tuple's class and its fields, separated by spaces; empty for other values.
std::string names_of_tuple(PyObject* value);
// For NumPy, types that it lacks are bits of the same size.
DType numpy_bits_of(DType dtype);
// A NumPy array of those bits as a tensor of torch, in the same memory.
nb::object torch_tensor_of(const nb::object& bits, DType dtype);
TensorMaker tensor_maker_of(Framework framework);
}  // namespace reverie::python
