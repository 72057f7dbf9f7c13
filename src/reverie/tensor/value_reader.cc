// Tested in value_test.cc.
#include "reverie/tensor/value_reader.h"

#include <algorithm>
#include <cstring>
#include <optional>

#include "reverie/tensor/device_record.h"

namespace reverie {
namespace {

constexpr std::size_t kRankMax = 64;
// An empty container takes two bytes in a message, and a hundred times as much as an object.
constexpr std::size_t kContainersMin = std::size_t{1} << 20;
constexpr std::size_t kContainerBytes = 8;

Status cut_short() {
  return data_loss("encoded values end in the middle of one");
}

}  // namespace

ValueReader::ValueReader(const Payload& payload)
    : rest_(payload.head),
      bulk_(payload.bulk.empty() ? std::span<const std::byte>() : payload.bulk.front().bytes),
      containers_max_(std::max(kContainersMin, payload.head.size() / kContainerBytes)) {}

Result<std::uint64_t> ValueReader::number() {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (rest_.empty()) return cut_short();
    const auto byte = static_cast<std::uint64_t>(rest_.front());
    rest_ = rest_.subspan(1);
    if (shift == 63 && byte > 1) break;
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  return data_loss("an encoded number has more than 64 bits");
}

Result<std::span<const std::byte>> ValueReader::raw(std::size_t size) {
  if (size > rest_.size()) return cut_short();
  const auto bytes = rest_.first(size);
  rest_ = rest_.subspan(size);
  return bytes;
}

Status ValueReader::read_container(ValueToken& token) {
  REVERIE_ASSIGN_OR_RETURN(token.count, number());
  const std::size_t values_each = token.kind == ValueKind::kDict ? 2 : 1;
  if (token.kind == ValueKind::kNamedTuple || token.kind == ValueKind::kRecord) {
    REVERIE_ASSIGN_OR_RETURN(const std::size_t size, number());
    REVERIE_ASSIGN_OR_RETURN(token.bytes, raw(size));
  }
  // Each value takes at least one byte, including those still missing in the containers around this
  // one.
  if (token.count > (rest_.size() - std::min(lacking_, rest_.size())) / values_each) {
    return data_loss("a container of {} values has {} bytes left, which {} others lack too",
                     token.count, rest_.size(), lacking_);
  }
  if (++containers_ > containers_max_) {
    return data_loss("a message of more than {} containers; send arrays, or send it in parts",
                     containers_max_);
  }
  if (open_.size() >= kValueDepthMax) {
    return data_loss("values are nested more than {} deep", kValueDepthMax);
  }
  if (token.count > 0) open_.push_back(token.count * values_each);
  lacking_ += token.count * values_each;
  return {};
}

Status ValueReader::read_dtype(ValueToken& token) {
  REVERIE_ASSIGN_OR_RETURN(const auto byte, raw(1));
  token.dtype = static_cast<DType>(byte.front());
  if (token.dtype < DType::kBool || token.dtype >= DType::kBytes) {
    return data_loss("an array is of element type {}, which is unknown",
                     static_cast<int>(byte.front()));
  }
  return {};
}

Status ValueReader::read_layout(ValueToken& token) {
  REVERIE_RETURN_IF_ERROR(read_dtype(token));
  REVERIE_ASSIGN_OR_RETURN(const auto maker, raw(1));
  if (maker.front() > std::byte{2}) return data_loss("an array is of an unknown package");
  token.maker = static_cast<TensorMaker>(maker.front());
  REVERIE_ASSIGN_OR_RETURN(const std::size_t rank, number());
  if (rank > kRankMax)
    return data_loss("an array has {} dimensions; the bound is {}", rank, kRankMax);
  for (std::size_t i = 0; i < rank; ++i) {
    REVERIE_ASSIGN_OR_RETURN(const std::uint64_t extent, number());
    token.shape.push_back(static_cast<std::int64_t>(extent));
  }
  const std::optional<std::size_t> count = checked_element_count(token.shape);
  if (!count || __builtin_mul_overflow(*count, dtype_size_bytes(token.dtype), &token.size_bytes)) {
    return data_loss("an array has the shape {}", shape_text(token.shape));
  }
  return {};
}

Status ValueReader::read_device(ValueToken& token, bool& is_elsewhere) {
  REVERIE_ASSIGN_OR_RETURN(const auto way, raw(1));
  if (way.front() > std::byte{1}) return data_loss("an array of a device came in an unknown way");
  is_elsewhere = way.front() == std::byte{1};
  REVERIE_ASSIGN_OR_RETURN(token.device,
                           raw(is_elsewhere ? kDeviceRecordBytes : sizeof(DeviceUuid)));
  return {};
}

Status ValueReader::read_tensor(ValueToken& token) {
  REVERIE_RETURN_IF_ERROR(read_layout(token));
  if (token.kind == ValueKind::kDeviceTensor) {
    bool is_elsewhere = false;
    REVERIE_RETURN_IF_ERROR(read_device(token, is_elsewhere));
    if (is_elsewhere) return {};
  }
  REVERIE_ASSIGN_OR_RETURN(const std::size_t offset, number());
  const std::size_t size = token.size_bytes;
  if (size == 0) return {};
  if (offset % kBulkAlignment != 0 || offset > bulk_.size() || size > bulk_.size() - offset) {
    return data_loss("an array of {} bytes at {} does not fit into the {} bytes of the message",
                     size, offset, bulk_.size());
  }
  token.bytes = bulk_.subspan(offset, size);
  return {};
}

Result<ValueToken> ValueReader::next() {
  ValueToken token;
  // A full container is closed when the next value begins, not with its last value: that may be a
  // container too, one level deeper.
  while (!open_.empty() && open_.back() == 0) open_.pop_back();
  if (!open_.empty()) {
    --open_.back();
    --lacking_;
  }
  REVERIE_ASSIGN_OR_RETURN(const auto tag, raw(1));
  token.kind = static_cast<ValueKind>(tag.front());
  switch (token.kind) {
    case ValueKind::kNone:
    case ValueKind::kFalse:
    case ValueKind::kTrue:
      return token;
    case ValueKind::kInteger: {
      REVERIE_ASSIGN_OR_RETURN(const std::uint64_t bits, number());
      token.integer = static_cast<std::int64_t>((bits >> 1u) ^ (~(bits & 1u) + 1));
      return token;
    }
    case ValueKind::kBigInteger: {
      REVERIE_ASSIGN_OR_RETURN(const auto sign, raw(1));
      token.is_negative = sign.front() != std::byte{0};
      REVERIE_ASSIGN_OR_RETURN(const std::size_t size, number());
      REVERIE_ASSIGN_OR_RETURN(token.bytes, raw(size));
      return token;
    }
    case ValueKind::kReal: {
      REVERIE_ASSIGN_OR_RETURN(const auto bytes, raw(sizeof(token.real)));
      std::memcpy(&token.real, bytes.data(), bytes.size());
      return token;
    }
    case ValueKind::kComplex: {
      REVERIE_ASSIGN_OR_RETURN(const auto bytes, raw(sizeof(token.complex)));
      std::memcpy(&token.complex, bytes.data(), bytes.size());
      return token;
    }
    case ValueKind::kText:
    case ValueKind::kPickled:
    case ValueKind::kBytes: {
      REVERIE_ASSIGN_OR_RETURN(const std::size_t size, number());
      REVERIE_ASSIGN_OR_RETURN(token.bytes, raw(size));
      return token;
    }
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kDict:
    case ValueKind::kSet:
    case ValueKind::kFrozenSet:
    case ValueKind::kNamedTuple:
    case ValueKind::kRecord:
      REVERIE_RETURN_IF_ERROR(read_container(token));
      return token;
    case ValueKind::kScalar: {
      REVERIE_RETURN_IF_ERROR(read_dtype(token));
      REVERIE_ASSIGN_OR_RETURN(token.bytes, raw(dtype_size_bytes(token.dtype)));
      return token;
    }
    case ValueKind::kTensor:
    case ValueKind::kDeviceTensor:
      REVERIE_RETURN_IF_ERROR(read_tensor(token));
      return token;
  }
  return data_loss("an encoded value is of kind {}, which is unknown",
                   static_cast<int>(tag.front()));
}

}  // namespace reverie
