// FieldScan: finds the long contents of one field in a message that is still being received.
//
//     bytes   [head, content][head|            |head, con]  ...  in pieces, wherever they are cut
//     found    `plain`             `apart_bytes`  `plain`        a head that is cut is `held` back
//
// So a receiver can store a long content (a chunk) in its own memory block, as if it had come
// alone. Only fields of the message itself are examined, not fields nested in them. At malformed
// bytes the scan stops: everything after is plain, and the reader of the message reports the
// error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace reverie {

// A state machine: no memory, no lock.
class FieldScan {
 public:
  using Bytes = std::span<const std::byte>;

  // Smaller contents are cheaper to copy than to allocate separately.
  static constexpr std::size_t kApartBytesMin = std::size_t{8} << 10;

  // For a message in which nothing is searched.
  explicit FieldScan(std::size_t message_bytes)
      : left_bytes_(message_bytes), content_bytes_(message_bytes) {}
  // Keeps contents of field `number` apart if they have `apart_bytes_min` bytes or more.
  FieldScan(std::size_t message_bytes, std::uint32_t number,
            std::size_t apart_bytes_min = kApartBytesMin)
      : left_bytes_(message_bytes), number_(number), apart_bytes_min_(apart_bytes_min) {}

  // What was found at the front of the bytes. `held` and `plain` stay in the message.
  struct Found {
    Bytes held = {};              // bytes given earlier; returned alone, valid until the next call
    Bytes plain = {};             // bytes given now
    std::size_t taken_bytes = 0;  // `plain`, and what is held back or is a removed head
    // Next comes a content of this size, which must not be given to next(); 0: none. Its head is
    // not in `plain`.
    std::size_t apart_bytes = 0;
  };
  // Requires bytes of the message, at most up to its end. Takes all of them, or those before a
  // content that is kept apart, or none if it returns `held`.
  Found next(Bytes bytes);

  // How many of the next bytes are certainly plain.
  std::size_t plain_bytes() const { return content_bytes_; }

 private:
  static constexpr std::size_t kHeadBytesMax = 5 + 10;  // a tag and a varint

  struct Head {
    std::size_t size_bytes = 0;
    std::size_t content_bytes = 0;
    bool is_apart = false;  // the content belongs apart
  };
  // The head at the front of `bytes`; none while it is incomplete. Malformed bytes count as a head
  // of no bytes whose content is the rest. Requires left_bytes >= bytes.size(): what is left of the
  // message from there on.
  std::optional<Head> read_head(Bytes bytes, std::size_t left_bytes) const;
  // What is held back followed by `bytes`, up to the size of a head.
  Bytes after_held(Bytes bytes);

  std::size_t left_bytes_;  // of the message, after what was taken
  std::uint32_t number_ = 0;
  std::size_t apart_bytes_min_ = kApartBytesMin;
  std::size_t content_bytes_ = 0;  // left of the current plain field
  std::byte held_[kHeadBytesMax] = {};
  std::size_t held_bytes_ = 0;
};

}  // namespace reverie
