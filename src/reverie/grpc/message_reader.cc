#include "reverie/grpc/message_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reverie/grpc/gzip.h"

namespace reverie {
namespace {

// A compressed message may inflate to this many bytes, or this many times its size. Deflate can
// compress a thousand bytes into one, but real messages do not.
constexpr std::size_t kInflatedBytesMax = std::size_t{16} << 20;
constexpr std::size_t kInflatedRatioMax = 8;

// Copies as much as `message` has room for, and returns how much; bytes that were read directly to
// their place are not copied.
std::size_t copy_into(GrpcMessage& message, std::size_t* filled_bytes,
                      std::span<const std::byte> bytes) {
  const std::span<std::byte> room = message.writable().subspan(*filled_bytes);
  const std::size_t size = std::min(bytes.size(), room.size());
  if (size > 0 && room.data() != bytes.data()) std::memmove(room.data(), bytes.data(), size);
  *filled_bytes += size;
  return size;
}

}  // namespace

Status MessageReader::feed(std::span<const std::byte>* bytes, Ref<GrpcMessage>* message) {
  if (prefix_bytes_ < kPrefixBytes) {
    const std::size_t part = std::min(bytes->size(), kPrefixBytes - prefix_bytes_);
    std::memcpy(prefix_ + prefix_bytes_, bytes->data(), part);
    *bytes = bytes->subspan(part);
    prefix_bytes_ += part;
    if (prefix_bytes_ < kPrefixBytes) return {};
    REVERIE_RETURN_IF_ERROR(begin());
  }
  const auto part = bytes->first(std::min(bytes->size(), left_bytes_));
  *bytes = bytes->subspan(part.size());
  const std::size_t before = left_bytes_;
  const Status status = fill(part);
  budget_->add_in(before - left_bytes_);
  REVERIE_RETURN_IF_ERROR(status);
  return left_bytes_ == 0 ? finish(message) : Status();
}

Status MessageReader::begin() {
  if (prefix_[0] > 1) {
    return internal_error("a message begins with byte {}; 0 (plain) and 1 (compressed) are known",
                          prefix_[0]);
  }
  is_compressed_ = prefix_[0] == 1;
  if (is_compressed_ && !is_gzip_allowed_) {
    return internal_error("a message is compressed, and grpc-encoding does not say how");
  }
  const std::size_t size_bytes = (std::size_t{prefix_[1]} << 24u) |
                                 (std::size_t{prefix_[2]} << 16u) |
                                 (std::size_t{prefix_[3]} << 8u) | std::size_t{prefix_[4]};
  if (size_bytes > message_bytes_max_) {
    return resource_exhausted(
        "a message of {} bytes is larger than the {} allowed; raise message_bytes of the server's "
        "limits, or send less at once",
        size_bytes, message_bytes_max_);
  }
  message_bytes_ = left_bytes_ = size_bytes;
  filled_bytes_ = 0;
  if (apart_field_ > 0 && !is_compressed_ && size_bytes >= FieldScan::kApartBytesMin) {
    scan_ = FieldScan(size_bytes, apart_field_);
    return {};
  }
  scan_ = FieldScan(size_bytes);
  REVERIE_ASSIGN_OR_RETURN(message_, GrpcMessage::make(pool_, size_bytes));
  return {};
}

std::span<std::byte> MessageReader::room() {
  if (part_) return part_->writable().subspan(part_filled_bytes_);
  if (!message_) return {};
  return message_->writable().subspan(filled_bytes_, scan_.plain_bytes());
}

Status MessageReader::fill(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const std::size_t before = bytes.size();
    if (part_) {
      bytes = bytes.subspan(copy_into(*part_, &part_filled_bytes_, bytes));
      if (part_filled_bytes_ == part_->bytes().size()) {
        parts_.push_back({filled_bytes_, std::move(part_)});
      }
    } else {
      const FieldScan::Found found = scan_.next(bytes);
      if (!message_ && found.held.size() + found.plain.size() > 0) {
        // Everything before this is in parts, and there may be no further ones.
        REVERIE_ASSIGN_OR_RETURN(message_,
                                 GrpcMessage::make(pool_, found.held.size() + left_bytes_));
      }
      if (message_) {
        copy_into(*message_, &filled_bytes_, found.held);
        copy_into(*message_, &filled_bytes_, found.plain);
      }
      bytes = bytes.subspan(found.taken_bytes);
      if (found.apart_bytes > 0) {
        REVERIE_ASSIGN_OR_RETURN(part_, GrpcMessage::make(pool_, found.apart_bytes));
        part_filled_bytes_ = 0;
      }
    }
    left_bytes_ -= before - bytes.size();
  }
  return {};
}

Status MessageReader::finish(Ref<GrpcMessage>* message) {
  prefix_bytes_ = 0;
  if (!message_) {
    REVERIE_ASSIGN_OR_RETURN(message_, GrpcMessage::make(pool_, 0));
  }
  if (!parts_.empty()) message_->finish(filled_bytes_, std::exchange(parts_, {}), message_bytes_);
  message_bytes_ = 0;
  if (!is_compressed_) {
    *message = std::move(message_);
    return {};
  }
  const Ref<GrpcMessage> compressed = std::move(message_);
  Result<Ref<GrpcMessage>> inflated = inflate(compressed->bytes());
  release(*compressed);
  REVERIE_ASSIGN_OR_RETURN(*message, std::move(inflated));
  return {};
}

Result<Ref<GrpcMessage>> MessageReader::inflate(std::span<const std::byte> compressed) {
  const std::size_t size_bytes_max = std::min(
      message_bytes_max_, std::max(kInflatedBytesMax, kInflatedRatioMax * compressed.size()));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t size_bytes,
                           inflated_bytes(compressed, size_bytes_max));
  REVERIE_RETURN_IF_ERROR(budget_->check_in(size_bytes, compressed.size()));
  REVERIE_ASSIGN_OR_RETURN(Ref<GrpcMessage> inflated, gunzip(compressed, size_bytes, pool_));
  budget_->add_in(size_bytes);
  return inflated;
}

void MessageReader::reset() {
  budget_->give_back_in(here_bytes());
  message_bytes_ = 0;
  left_bytes_ = 0;
  message_ = {};
  part_ = {};
  parts_.clear();
  prefix_bytes_ = 0;
}

}  // namespace reverie
