#include "reverie/adapters/reverb/message_reader.h"

#include <algorithm>
#include <cstring>

#include "reverie/adapters/reverb/gzip.h"

namespace reverie {

Status ReceiveBudget::take(std::size_t bytes) {
  if (held_bytes > 0 && bytes > 0 && held_bytes + bytes > held_bytes_max) {
    return resource_exhausted(
        "the connection's messages in transfer hold {} bytes and {} more would "
        "pass the {} allowed; send fewer at once, or raise received_bytes_max",
        held_bytes, bytes, held_bytes_max);
  }
  if (of_all) REVERIE_RETURN_IF_ERROR(of_all->take(bytes));
  held_bytes += bytes;
  return {};
}

void ReceiveBudget::give_back(std::size_t bytes) {
  held_bytes -= bytes;
  if (of_all) of_all->give_back(bytes);
}

Status MessageReader::feed(std::span<const std::byte>* bytes, Ref<GrpcMessage>* message) {
  if (prefix_bytes_ < kPrefixBytes) {
    const std::size_t part = std::min(bytes->size(), kPrefixBytes - prefix_bytes_);
    std::memcpy(prefix_ + prefix_bytes_, bytes->data(), part);
    *bytes = bytes->subspan(part);
    prefix_bytes_ += part;
    if (prefix_bytes_ < kPrefixBytes) return {};
    REVERIE_RETURN_IF_ERROR(begin());
  }
  const std::span<std::byte> room = message_->writable().subspan(filled_bytes_);
  const std::size_t part = std::min(bytes->size(), room.size());
  if (part > 0 && room.data() != bytes->data()) std::memmove(room.data(), bytes->data(), part);
  *bytes = bytes->subspan(part);
  filled_bytes_ += part;
  return part == room.size() ? finish(message) : Status();
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
        "a message of {} bytes is larger than the {} allowed; raise "
        "message_bytes_max or send less at once",
        size_bytes, message_bytes_max_);
  }
  REVERIE_RETURN_IF_ERROR(budget_->take(size_bytes));
  auto message = GrpcMessage::make(pool_, size_bytes);
  if (!message.ok()) {
    budget_->give_back(size_bytes);
    return message.status();
  }
  message_ = std::move(message).value();
  filled_bytes_ = 0;
  return {};
}

Status MessageReader::finish(Ref<GrpcMessage>* message) {
  prefix_bytes_ = 0;
  if (!is_compressed_) {
    *message = std::move(message_);
    return {};
  }
  const Ref<GrpcMessage> compressed = std::move(message_);
  let_go(*compressed);
  REVERIE_ASSIGN_OR_RETURN(Ref<GrpcMessage> inflated,
                           gunzip(compressed->bytes(), message_bytes_max_, pool_));
  REVERIE_RETURN_IF_ERROR(budget_->take(inflated->bytes().size()));
  *message = std::move(inflated);
  return {};
}

void MessageReader::reset() {
  if (message_) let_go(*message_);
  message_ = {};
  prefix_bytes_ = 0;
}

}  // namespace reverie
