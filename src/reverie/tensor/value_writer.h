// Writes values into a payload, one after another, each container before its contents.
//
//     writer.begin(ValueKind::kTuple, 2);
//     writer.text("policy");
//     writer.tensor(DType::kFloat32, shape, bytes, TensorMaker::kNumpy);
//
// The caller balances counts and values, and stays within kValueDepthMax; ValueReader checks it.
#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "reverie/tensor/device_record.h"
#include "reverie/tensor/dtype.h"
#include "reverie/tensor/payload.h"
#include "reverie/tensor/value_kind.h"

namespace reverie {

// Not thread-safe. Others may add to the payload meanwhile, but not take away from it.
class ValueWriter {
 public:
  explicit ValueWriter(Payload& payload) : payload_(payload) {}

  void none();
  void boolean(bool value);
  void integer(std::int64_t value);
  // Little-endian.
  void big_integer(bool is_negative, std::span<const std::byte> magnitude);
  void real(double value);
  void complex(std::complex<double> value);
  void text(std::string_view utf8);
  void bytes(std::span<const std::byte> value);
  void pickled(std::span<const std::byte> pickle);

  // A list, tuple, set or frozen set of `count` values, or a dict of `count` pairs.
  void begin(ValueKind kind, std::size_t count);
  // `names`: of the type, then of each field, with a space between.
  void begin_named_tuple(std::string_view names, std::size_t count);
  void begin_record(std::string_view names, std::size_t count);

  // Row-major elements, which are copied.
  void tensor(DType dtype, std::span<const std::int64_t> shape, std::span<const std::byte> bytes,
              TensorMaker maker);
  // The same without a copy: `keep` holds the bytes, which do not change while the payload lives,
  // unless `may_change` says that they may once the call that takes it has returned.
  void lent_tensor(DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::byte> bytes, TensorMaker maker,
                   std::shared_ptr<const void> keep, bool may_change = false);
  // The same for a tensor of a device, of which the bytes are a copy: the receiver has it on this
  // device if it uses that too.
  void lent_tensor(DType dtype, std::span<const std::int64_t> shape,
                   std::span<const std::byte> bytes, TensorMaker maker, const DeviceUuid& device,
                   std::shared_ptr<const void> keep);
  // A row-major tensor in the memory of a device, from which the receiver copies it. The payload
  // has the memory in `lent`.
  void device_tensor(DType dtype, std::span<const std::int64_t> shape, TensorMaker maker,
                     const DeviceRecord& place);
  void scalar(DType dtype, std::span<const std::byte> bytes);

 private:
  void tag(ValueKind kind) { payload_.head.push_back(static_cast<std::byte>(kind)); }
  void number(std::uint64_t value);
  void sized(ValueKind kind, std::span<const std::byte> bytes);
  void begin_named(ValueKind kind, std::string_view names, std::size_t count);
  void raw(std::span<const std::byte> bytes);
  // What precedes a tensor's bytes.
  void layout(ValueKind kind, DType dtype, std::span<const std::int64_t> shape, TensorMaker maker);
  // Where the next piece of bulk begins.
  std::size_t next_bulk();

  Payload& payload_;
  // What next_bulk() has counted: a sum over all pieces for each tensor would be quadratic.
  std::size_t bulk_count_ = 0;
  std::size_t bulk_bytes_ = 0;
};

}  // namespace reverie
