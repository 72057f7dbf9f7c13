// Tested in value_test.cc.
#include "reverie/tensor/value_writer.h"

#include <cstring>
#include <utility>
#include <vector>

namespace reverie {

// Seven bits per byte, the lowest first; the highest bit says that more follow.
void ValueWriter::number(std::uint64_t value) {
  while (value >= 0x80) {
    payload_.head.push_back(static_cast<std::byte>(value | 0x80));
    value >>= 7u;
  }
  payload_.head.push_back(static_cast<std::byte>(value));
}

void ValueWriter::raw(std::span<const std::byte> bytes) {
  payload_.head.insert(payload_.head.end(), bytes.begin(), bytes.end());
}

void ValueWriter::none() {
  tag(ValueKind::kNone);
}

void ValueWriter::boolean(bool value) {
  tag(value ? ValueKind::kTrue : ValueKind::kFalse);
}

void ValueWriter::integer(std::int64_t value) {
  tag(ValueKind::kInteger);
  const auto bits = static_cast<std::uint64_t>(value);
  number((bits << 1u) ^ (value < 0 ? ~std::uint64_t{0} : 0));
}

void ValueWriter::big_integer(bool is_negative, std::span<const std::byte> magnitude) {
  tag(ValueKind::kBigInteger);
  payload_.head.push_back(static_cast<std::byte>(is_negative ? 1 : 0));
  number(magnitude.size());
  raw(magnitude);
}

void ValueWriter::real(double value) {
  tag(ValueKind::kReal);
  raw(std::as_bytes(std::span(&value, 1)));
}

void ValueWriter::complex(std::complex<double> value) {
  tag(ValueKind::kComplex);
  raw(std::as_bytes(std::span(&value, 1)));
}

void ValueWriter::sized(ValueKind kind, std::span<const std::byte> bytes) {
  tag(kind);
  number(bytes.size());
  raw(bytes);
}

void ValueWriter::text(std::string_view utf8) {
  sized(ValueKind::kText, std::as_bytes(std::span(utf8)));
}

void ValueWriter::bytes(std::span<const std::byte> value) {
  sized(ValueKind::kBytes, value);
}

void ValueWriter::pickled(std::span<const std::byte> pickle) {
  sized(ValueKind::kPickled, pickle);
}

void ValueWriter::begin(ValueKind kind, std::size_t count) {
  tag(kind);
  number(count);
}

void ValueWriter::begin_named(ValueKind kind, std::string_view names, std::size_t count) {
  begin(kind, count);
  number(names.size());
  raw(std::as_bytes(std::span(names)));
}

void ValueWriter::begin_named_tuple(std::string_view names, std::size_t count) {
  begin_named(ValueKind::kNamedTuple, names, count);
}

void ValueWriter::begin_record(std::string_view names, std::size_t count) {
  begin_named(ValueKind::kRecord, names, count);
}

std::size_t ValueWriter::next_bulk() {
  for (; bulk_count_ < payload_.bulk.size(); ++bulk_count_) {
    bulk_bytes_ = Payload::padded(bulk_bytes_) + payload_.bulk[bulk_count_].bytes.size();
  }
  return Payload::padded(bulk_bytes_);
}

void ValueWriter::tensor(DType dtype, std::span<const std::int64_t> shape,
                         std::span<const std::byte> bytes, TensorMaker maker) {
  auto copy = std::make_shared<std::vector<std::byte>>(bytes.begin(), bytes.end());
  const std::span<const std::byte> copied = *copy;
  lent_tensor(dtype, shape, copied, maker, std::move(copy));
}

void ValueWriter::lent_tensor(DType dtype, std::span<const std::int64_t> shape,
                              std::span<const std::byte> bytes, TensorMaker maker,
                              std::shared_ptr<const void> keep, bool may_change) {
  layout(ValueKind::kTensor, dtype, shape, maker);
  number(next_bulk());
  if (!bytes.empty()) payload_.bulk.push_back({bytes, std::move(keep), may_change});
}

void ValueWriter::lent_tensor(DType dtype, std::span<const std::int64_t> shape,
                              std::span<const std::byte> bytes, TensorMaker maker,
                              const DeviceUuid& device, std::shared_ptr<const void> keep) {
  layout(ValueKind::kDeviceTensor, dtype, shape, maker);
  payload_.head.push_back(std::byte{0});
  raw(device);
  number(next_bulk());
  if (!bytes.empty()) payload_.bulk.push_back({bytes, std::move(keep)});
}

void ValueWriter::device_tensor(DType dtype, std::span<const std::int64_t> shape, TensorMaker maker,
                                const DeviceRecord& place) {
  layout(ValueKind::kDeviceTensor, dtype, shape, maker);
  payload_.head.push_back(std::byte{1});
  raw(encode_device_record(place));
}

void ValueWriter::layout(ValueKind kind, DType dtype, std::span<const std::int64_t> shape,
                         TensorMaker maker) {
  tag(kind);
  payload_.head.push_back(static_cast<std::byte>(dtype));
  payload_.head.push_back(static_cast<std::byte>(maker));
  number(shape.size());
  for (const std::int64_t extent : shape) number(static_cast<std::uint64_t>(extent));
}

void ValueWriter::scalar(DType dtype, std::span<const std::byte> bytes) {
  tag(ValueKind::kScalar);
  payload_.head.push_back(static_cast<std::byte>(dtype));
  raw(bytes);
}

}  // namespace reverie
