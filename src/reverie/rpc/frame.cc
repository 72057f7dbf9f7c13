#include "reverie/rpc/frame.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace reverie {
namespace {

constexpr std::array<char, 4> kMagic = {'R', 'v', 'R', '2'};
// Smaller remainders are read together with what follows them.
constexpr std::size_t kDirectMin = std::size_t{32} << 10;
// Memory for a longer head is allocated as its bytes arrive.
constexpr std::size_t kHeadStart = std::size_t{64} << 10;
// Smaller bulk is not worth the allocator, which keeps memory.
constexpr std::size_t kLargeBulk = std::size_t{1} << 20;
constexpr std::byte kInArena{1};
constexpr std::byte kLends{2};

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

template <typename T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

bool is_known(std::uint8_t kind) {
  return (kind >= 1 && kind <= 14) || (kind >= 16 && kind <= 23);
}

}  // namespace

std::array<std::byte, kFrameHeaderBytes> encode_frame_header(const FrameHeader& header,
                                                             const Message& message,
                                                             bool is_in_arena) {
  std::array<std::byte, kFrameHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  put(&bytes[4], static_cast<std::uint8_t>(header.kind));
  bytes[5] = (is_in_arena ? kInArena : std::byte{0}) | (header.lends ? kLends : std::byte{0});
  put(&bytes[6], static_cast<std::uint16_t>(message.name.size()));
  put(&bytes[8], static_cast<std::uint32_t>(message.payload.head.size()));
  put(&bytes[16], static_cast<std::uint64_t>(message.payload.bulk_bytes()));
  put(&bytes[24], header.sequence);
  put(&bytes[32], header.received);
  put(&bytes[40], header.call);
  return bytes;
}

Status FrameReader::begin_frame() {
  if (std::memcmp(header_.data(), kMagic.data(), kMagic.size()) != 0) {
    return invalid_argument("the stream holds no frame of version 2 where one must begin");
  }
  const auto kind = get<std::uint8_t>(&header_[4]);
  if (!is_known(kind)) return invalid_argument("a frame is of kind {}, which is unknown", kind);
  const bool may_lend = static_cast<FrameKind>(kind) == FrameKind::kCall ||
                        static_cast<FrameKind>(kind) == FrameKind::kAnswer;
  const std::byte where = may_lend ? header_[5] & ~kLends : header_[5];
  is_in_arena_ = bulk_source_ && where == kInArena;
  if ((where != std::byte{0} && !is_in_arena_) || get<std::uint32_t>(&header_[12]) != 0) {
    return invalid_argument("a frame of kind {} has reserved bits set", kind);
  }
  const std::size_t name_size = get<std::uint16_t>(&header_[6]);
  const std::size_t head_size = get<std::uint32_t>(&header_[8]);
  const std::size_t bulk_size = get<std::uint64_t>(&header_[16]);
  if (name_size > limits_.name_bytes_max || head_size > limits_.head_bytes_max ||
      bulk_size > limits_.bulk_bytes_max) {
    return resource_exhausted(
        "a frame has {} + {} + {} bytes of name, values and tensors; the bounds are {} + {} + {}",
        name_size, head_size, bulk_size, limits_.name_bytes_max, limits_.head_bytes_max,
        limits_.bulk_bytes_max);
  }
  frame_.header.kind = static_cast<FrameKind>(kind);
  frame_.header.sequence = get<std::uint64_t>(&header_[24]);
  frame_.header.received = get<std::uint64_t>(&header_[32]);
  frame_.header.call = get<std::uint64_t>(&header_[40]);
  frame_.header.lends = where != header_[5];
  frame_.message.name.resize(name_size);
  head_size_ = head_size;
  frame_.message.payload.head.resize(std::min(head_size, kHeadStart));
  bulk_size_ = bulk_size;
  if (bulk_size > 0 && !is_in_arena_) {
    Allocator& memory =
        bulk_memory_ != nullptr && bulk_size >= kLargeBulk ? *bulk_memory_ : Allocator::heap();
    REVERIE_ASSIGN_OR_RETURN(Buffer buffer, memory.allocate(bulk_size));
    bulk_ = std::make_shared<Buffer>(std::move(buffer));
  }
  return {};
}

std::span<std::byte> FrameReader::part_bytes() {
  switch (part_) {
    case Part::kHeader:
      return header_;
    case Part::kName:
      return std::as_writable_bytes(std::span(frame_.message.name));
    case Part::kHead:
      return frame_.message.payload.head;
    case Part::kRange:
      return is_in_arena_ ? std::span<std::byte>(range_) : std::span<std::byte>();
    case Part::kBulk:
      return bulk_ ? std::span(bulk_->data(), bulk_size_) : std::span<std::byte>();
  }
  return {};
}

Status FrameReader::find_bulk() {
  const ArenaRange range = decode_range(range_);
  if (range.size_bytes != bulk_size_) {
    return invalid_argument("a frame has {} bytes of bulk, and a range of {} for it", bulk_size_,
                            range.size_bytes);
  }
  REVERIE_ASSIGN_OR_RETURN(ArenaBytes found, bulk_source_(range));
  frame_.message.payload.bulk.push_back({found.bytes, std::move(found.keep)});
  return {};
}

Status FrameReader::go_on(std::vector<Frame>& frames) {
  while (filled_ == part_bytes().size()) {
    filled_ = 0;
    switch (part_) {
      case Part::kHeader:
        REVERIE_RETURN_IF_ERROR(begin_frame());
        part_ = Part::kName;
        break;
      case Part::kName:
        part_ = Part::kHead;
        break;
      case Part::kHead: {
        std::vector<std::byte>& head = frame_.message.payload.head;
        if (head.size() < head_size_) {
          filled_ = head.size();
          head.resize(std::min(head_size_, 4 * head.size()));
        } else {
          part_ = Part::kRange;
        }
        break;
      }
      case Part::kRange:
        if (is_in_arena_) REVERIE_RETURN_IF_ERROR(find_bulk());
        part_ = Part::kBulk;
        break;
      case Part::kBulk:
        if (bulk_) {
          const std::span<const std::byte> bytes(bulk_->data(), bulk_size_);
          frame_.message.payload.bulk.push_back({bytes, std::move(bulk_)});
        }
        frames.push_back(std::move(frame_));
        frame_ = {};
        bulk_size_ = 0;
        part_ = Part::kHeader;
        break;
    }
  }
  return {};
}

Status FrameReader::feed(std::span<const std::byte> bytes, std::vector<Frame>& frames) {
  while (!bytes.empty()) {
    const std::span<std::byte> part = part_bytes();
    const std::size_t size = std::min(bytes.size(), part.size() - filled_);
    std::memcpy(part.data() + filled_, bytes.data(), size);
    filled_ += size;
    bytes = bytes.subspan(size);
    REVERIE_RETURN_IF_ERROR(go_on(frames));
  }
  return {};
}

std::span<std::byte> FrameReader::direct() {
  if (part_ != Part::kHead && part_ != Part::kBulk) return {};
  const std::span<std::byte> rest = part_bytes().subspan(filled_);
  return rest.size() >= kDirectMin ? rest : std::span<std::byte>();
}

void FrameReader::advance(std::size_t size_bytes, std::vector<Frame>& frames) {
  filled_ += size_bytes;
  const Status status = go_on(frames);  // a header or a range follows, which has not arrived yet
  REVERIE_CHECK(status.ok());
}

}  // namespace reverie
