#include "python/bindings/dlpack_exchange.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "python/bindings/convert.h"
#include "reverie/tensor/shape.h"

namespace reverie::python {
namespace {

using DlpackCode = nb::dlpack::dtype_code;

// Types with one name in both.
struct DTypePair {
  DType dtype;
  DlpackCode code;
  std::uint8_t bits;
};
constexpr DTypePair kDTypePairs[] = {
    // The usual ones first.
    {DType::kFloat32, DlpackCode::Float, 32},
    {DType::kInt64, DlpackCode::Int, 64},
    {DType::kUInt8, DlpackCode::UInt, 8},
    {DType::kBool, DlpackCode::Bool, 8},
    {DType::kFloat64, DlpackCode::Float, 64},
    {DType::kInt32, DlpackCode::Int, 32},
    {DType::kBFloat16, DlpackCode::Bfloat, 16},
    {DType::kFloat16, DlpackCode::Float, 16},
    {DType::kInt8, DlpackCode::Int, 8},
    {DType::kInt16, DlpackCode::Int, 16},
    {DType::kUInt16, DlpackCode::UInt, 16},
    {DType::kUInt32, DlpackCode::UInt, 32},
    {DType::kUInt64, DlpackCode::UInt, 64},
    {DType::kComplex64, DlpackCode::Complex, 64},
    {DType::kComplex128, DlpackCode::Complex, 128},
    {DType::kFloat8E4M3FN, DlpackCode::Float8_E4M3FN, 8},
    {DType::kFloat8E5M2, DlpackCode::Float8_E5M2, 8},
};

// Never released: the interpreter may be gone when the library's statics are destroyed.
TorchTensors torch_tensors_known;

// A tensor's memory until torch gives it back, on any thread.
struct LentBuffer {
  ManagedTensor managed;
  Buffer buffer;
  Shape shape;
  bool* is_back = nullptr;  // set when it is given back, if not null
};

void take_back_lent(ManagedTensor* managed) {
  const std::unique_ptr<LentBuffer> lent(static_cast<LentBuffer*>(managed->context));
  if (lent->is_back != nullptr) *lent->is_back = true;
}

}  // namespace

const ExchangeTable* exchange_table(nb::handle type) {
  const nb::object capsule = nb::getattr(type, "__dlpack_c_exchange_api__", nb::none());
  if (capsule.is_none()) return nullptr;
  const auto* const table =
      static_cast<const ExchangeTable*>(PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api"));
  if (table == nullptr) {
    PyErr_Clear();
    return nullptr;
  }
  const bool is_complete = table->object_of != nullptr && table->tensor_of != nullptr;
  return table->major == 1 && is_complete ? table : nullptr;
}

const TorchTensors& torch_tensors() {
  if (torch_tensors_known.type == nullptr) {
    nb::object type = nb::module_::import_("torch").attr("Tensor");
    torch_tensors_known.table = exchange_table(type);
    torch_tensors_known.type = type.release().ptr();
  }
  return torch_tensors_known;
}

const TorchTensors& known_torch_tensors() {
  return torch_tensors_known;
}

std::optional<DType> dtype_of_dlpack(nb::dlpack::dtype dtype) {
  if (dtype.lanes != 1) return std::nullopt;
  const auto* const found = std::ranges::find_if(kDTypePairs, [&](const DTypePair& pair) {
    return static_cast<std::uint8_t>(pair.code) == dtype.code && pair.bits == dtype.bits;
  });
  if (found == std::end(kDTypePairs)) return std::nullopt;
  return found->dtype;
}

std::optional<nb::dlpack::dtype> dlpack_dtype(DType dtype) {
  const auto* const found = std::ranges::find(kDTypePairs, dtype, &DTypePair::dtype);
  if (found == std::end(kDTypePairs)) return std::nullopt;
  return nb::dlpack::dtype{static_cast<std::uint8_t>(found->code), found->bits, 1};
}

bool is_row_major(const nb::dlpack::dltensor& tensor) {
  if (tensor.strides == nullptr) return true;
  // Without elements the strides have no meaning, and nothing is copied.
  if (std::any_of(tensor.shape, tensor.shape + tensor.ndim, [](auto n) { return n == 0; })) {
    return true;
  }
  std::int64_t expected = 1;
  for (std::int32_t i = tensor.ndim; i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

bool may_be_marked(const nb::dlpack::dltensor& tensor) {
  const auto code = static_cast<DlpackCode>(tensor.dtype.code);
  if (code == DlpackCode::Complex) return true;
  if (code != DlpackCode::Float) return false;
  // Negative are the imaginary parts of conjugates. They lie in row-major order only if there is
  // one; a pair is aligned to its size, and the imaginary part comes second.
  const std::size_t size_bytes = tensor.dtype.bits / 8;
  const auto address = reinterpret_cast<std::uintptr_t>(tensor.data) + tensor.byte_offset;
  return (address & size_bytes) != 0 &&
         std::all_of(tensor.shape, tensor.shape + tensor.ndim, [](auto n) { return n == 1; });
}

nb::object tensor_from_buffer(const ExchangeTable& table, nb::dlpack::dtype dtype,
                              std::span<const std::int64_t> shape, Buffer buffer) {
  bool is_back = false;
  auto lent = std::make_unique<LentBuffer>();
  lent->buffer = std::move(buffer);
  lent->shape.assign(shape.begin(), shape.end());
  lent->is_back = &is_back;
  lent->managed.context = lent.get();
  lent->managed.give_back = take_back_lent;
  lent->managed.tensor = {lent->buffer.data(),
                          {nb::device::cpu::value, 0},
                          static_cast<std::int32_t>(shape.size()),
                          dtype,
                          lent->shape.data(),
                          nullptr,
                          0};
  PyObject* tensor = nullptr;
  const bool has_failed = table.object_of(&lent->managed, &tensor) != 0;
  if (!is_back && !has_failed) lent->is_back = nullptr;
  // A failure may come before or after the tensor takes the memory, and gives it back.
  if (is_back || !has_failed) static_cast<void>(lent.release());
  if (has_failed) raise_pending();
  return nb::steal(tensor);
}

}  // namespace reverie::python
