// MessageReader: assembles the messages of one stream from the bytes of its DATA frames.
//
//     [compressed? 1 byte][length 4 bytes, big end first][length bytes] ...
//
// A length is checked against its bound before memory is allocated for it, and bytes count when
// they arrive, not when they are announced. If long contents of a field are kept apart, each is
// filled like a separate message, and memory for the rest is allocated when its first byte comes:
//
//     [head chunk][head chunk][item][keys]      one message
//           |           |         |    |
//       [ chunk ]   [ chunk ]  [item][keys]     two parts, and the rest
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "reverie/base/status.h"
#include "reverie/grpc/connection_budget.h"
#include "reverie/grpc/field_scan.h"
#include "reverie/grpc/grpc_message.h"

namespace reverie {

// A state machine: no lock, no socket.
class MessageReader {
 public:
  static constexpr std::size_t kPrefixBytes = 5;

  MessageReader(std::size_t message_bytes_max, Ref<MessagePool> pool,
                std::shared_ptr<ConnectionBudget> budget)
      : message_bytes_max_(message_bytes_max), pool_(std::move(pool)), budget_(std::move(budget)) {}

  // The stream's messages may be compressed with gzip.
  void allow_gzip() { is_gzip_allowed_ = true; }
  // Long contents of this field (FieldScan) become parts of their message, unless it is compressed.
  void set_apart(std::uint32_t field_number) { apart_field_ = field_number; }

  // Takes bytes from the front of `bytes`, at most up to the end of one message, which it then
  // stores in `message`. Call again with the rest. After an error the stream cannot be used any
  // more.
  Status feed(std::span<const std::byte>* bytes, Ref<GrpcMessage>* message);

  // Where the next bytes of the current message belong: if the socket is read directly to there,
  // feed() copies nothing. Empty between messages, and if the place depends on the bytes; valid
  // until feed() or reset().
  std::span<std::byte> room();

  // Whether the stream may end here.
  bool is_between_messages() const { return prefix_bytes_ == 0; }

  // Returns the bytes of `message` to the budget, once it is delivered or dropped.
  void release(const GrpcMessage& message) { budget_->give_back_in(message.received_bytes()); }
  // How many bytes of the message that is being received are here, and how many are missing.
  std::size_t here_bytes() const { return message_bytes_ - left_bytes_; }
  std::size_t left_bytes() const { return left_bytes_; }
  // Drops an incomplete message.
  void reset();

 private:
  Status begin();
  // Takes bytes of the message.
  Status fill(std::span<const std::byte> bytes);
  Status finish(Ref<GrpcMessage>* message);
  Result<Ref<GrpcMessage>> inflate(std::span<const std::byte> compressed);

  const std::size_t message_bytes_max_;
  Ref<MessagePool> pool_;
  std::shared_ptr<ConnectionBudget> budget_;
  bool is_gzip_allowed_ = false;
  bool is_compressed_ = false;
  std::uint32_t apart_field_ = 0;  // 0: none
  std::uint8_t prefix_[kPrefixBytes] = {};
  std::size_t prefix_bytes_ = 0;  // bytes of the prefix that are here

  // The message that is being received.
  std::size_t message_bytes_ = 0;
  std::size_t left_bytes_ = 0;  // still to come
  FieldScan scan_{0};
  Ref<GrpcMessage> message_;  // the rest besides parts; null until its first byte
  std::size_t filled_bytes_ = 0;
  Ref<GrpcMessage> part_;  // null between parts
  std::size_t part_filled_bytes_ = 0;
  std::vector<GrpcMessage::Part> parts_;
};

}  // namespace reverie
