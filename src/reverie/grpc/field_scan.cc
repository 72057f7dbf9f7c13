// Tested in src/reverie/native_wire/field_scan_test.cc.
#include "reverie/grpc/field_scan.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace reverie {
namespace {

constexpr std::size_t kShortBytesMax = 5;  // of a varint of 32 bits: a tag, a length
constexpr std::size_t kLongBytesMax = 10;

enum WireType : std::uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Varint {
  std::uint64_t value = 0;
  std::size_t size_bytes = 0;  // 0: it continues after the bytes
};

// Empty for a varint of more than `size_bytes_max` bytes.
std::optional<Varint> read_varint(FieldScan::Bytes bytes, std::size_t size_bytes_max) {
  Varint varint;
  const std::size_t end = std::min(bytes.size(), size_bytes_max);
  for (std::size_t i = 0; i < end; ++i) {
    const auto byte = std::to_integer<std::uint64_t>(bytes[i]);
    varint.value |= (byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      varint.size_bytes = i + 1;
      return varint;
    }
  }
  if (end == size_bytes_max) return std::nullopt;
  return varint;
}

}  // namespace

std::optional<FieldScan::Head> FieldScan::read_head(Bytes bytes, std::size_t left_bytes) const {
  const Head unknown{.size_bytes = 0, .content_bytes = left_bytes};
  // A message that ends in a head cannot be read.
  const std::optional<Head> cut =
      bytes.size() == left_bytes ? std::optional(unknown) : std::nullopt;
  const auto tag = read_varint(bytes, kShortBytesMax);
  if (!tag || tag->value > std::numeric_limits<std::uint32_t>::max()) return unknown;
  if (tag->size_bytes == 0) return cut;
  Head head{.size_bytes = tag->size_bytes};
  switch (tag->value & 7) {
    case kFixed64:
      head.content_bytes = 8;
      break;
    case kFixed32:
      head.content_bytes = 4;
      break;
    case kVarint:
    case kBytes: {
      const bool has_content = (tag->value & 7) == kBytes;
      const auto number =
          read_varint(bytes.subspan(head.size_bytes), has_content ? kShortBytesMax : kLongBytesMax);
      if (!number) return unknown;
      if (number->size_bytes == 0) return cut;
      head.size_bytes += number->size_bytes;
      if (has_content) head.content_bytes = number->value;
      head.is_apart =
          has_content && tag->value >> 3 == number_ && number->value >= apart_bytes_min_;
      break;
    }
    default:
      return unknown;
  }
  return head.content_bytes <= left_bytes - head.size_bytes ? head : unknown;
}

FieldScan::Bytes FieldScan::after_held(Bytes bytes) {
  if (held_bytes_ == 0) return bytes;
  const std::size_t more = std::min(bytes.size(), kHeadBytesMax - held_bytes_);
  std::copy_n(bytes.begin(), more, held_ + held_bytes_);
  return {held_, held_bytes_ + more};
}

FieldScan::Found FieldScan::next(Bytes bytes) {
  Found found{.plain = bytes, .taken_bytes = bytes.size()};
  std::size_t at = 0;  // what precedes it is plain
  while (true) {
    const std::size_t passed = std::min(content_bytes_, bytes.size() - at);
    content_bytes_ -= passed;
    at += passed;
    if (at == bytes.size()) break;
    const Bytes seen = after_held(bytes.subspan(at));
    const auto head = read_head(seen, held_bytes_ + left_bytes_ - at);
    if (!head) {
      if (held_bytes_ == 0) std::ranges::copy(seen, held_);
      held_bytes_ = seen.size();
      found.plain = bytes.first(at);
      break;
    }
    const std::size_t held_bytes = std::exchange(held_bytes_, 0);
    if (head->is_apart) {
      found.plain = bytes.first(at);
      found.taken_bytes = at + head->size_bytes - held_bytes;
      found.apart_bytes = head->content_bytes;
      break;
    }
    content_bytes_ = head->size_bytes + head->content_bytes - held_bytes;
    if (held_bytes > 0) return {.held = {held_, held_bytes}};
  }
  left_bytes_ -= found.taken_bytes + found.apart_bytes;
  return found;
}

}  // namespace reverie
