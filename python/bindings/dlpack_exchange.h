// torch's tensors as memory, and memory as torch's tensors, through the C functions of DLPack.
//
// A type that has them gives the address of their table as `__dlpack_c_exchange_api__`. Reading a
// tensor this way takes 50 ns, making one 250 ns; `torch.from_numpy` takes 600 ns, and needs an
// array.
//
// Source: https://dmlc.github.io/dlpack/latest/c_api.html, version 1. Without such a table (torch
// before 2.10) tensors are read and made through NumPy.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "reverie/tensor/buffer.h"
#include "reverie/tensor/dtype.h"

namespace reverie::python {

namespace nb = nanobind;

// DLPack's DLManagedTensorVersioned: a tensor with its owner.
struct ManagedTensor {
  std::uint32_t major = 1;
  std::uint32_t minor = 0;
  void* context = nullptr;
  void (*give_back)(ManagedTensor* self) = nullptr;
  std::uint64_t flags = 0;
  nb::dlpack::dltensor tensor;
};

// DLPack's DLPackExchangeAPI. Its functions return 0, or set an exception.
struct ExchangeTable {
  std::uint32_t major;
  std::uint32_t minor;
  const ExchangeTable* previous;
  void* allocate;
  void* managed_of;
  int (*object_of)(ManagedTensor* managed, PyObject** object);
  int (*tensor_of)(void* object, void* tensor);
};

// The table of a type; null if it has none of version 1.
const ExchangeTable* exchange_table(nb::handle type);

// torch.Tensor and its table, which may be null. Imports torch the first time.
struct TorchTensors {
  PyObject* type = nullptr;
  const ExchangeTable* table = nullptr;
};
const TorchTensors& torch_tensors();
// The same, or nothing if torch_tensors() was never called. Runs no Python code.
const TorchTensors& known_torch_tensors();

// None for types that are no DType.
std::optional<DType> dtype_of_dlpack(nb::dlpack::dtype dtype);
std::optional<nb::dlpack::dtype> dlpack_dtype(DType dtype);

inline bool is_on_cpu(const nb::dlpack::dltensor& tensor) {
  constexpr std::int32_t kPinned = 3;
  return tensor.device.device_type == nb::device::cpu::value ||
         tensor.device.device_type == kPinned;
}
// Whether the elements lie one after another, in the order of C.
bool is_row_major(const nb::dlpack::dltensor& tensor);
// Whether the values may be the conjugates or negatives of the elements: torch says so by a mark,
// which only its own is_conj() and is_neg() tell.
bool may_be_marked(const nb::dlpack::dltensor& tensor);

// A new tensor over `buffer`, which it owns from now on. Requires a dtype that DLPack has, and a
// buffer of the size of the shape.
nb::object tensor_from_buffer(const ExchangeTable& table, nb::dlpack::dtype dtype,
                              std::span<const std::int64_t> shape, Buffer buffer);

}  // namespace reverie::python
