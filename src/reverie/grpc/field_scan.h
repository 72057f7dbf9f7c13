// Finds the long contents of one field in the bytes of a message that is still coming in.
//
//     bytes   [head, content][head|            |head, con]  ...  in pieces, wherever they are cut
//     found    `plain`             `apart_bytes`  `plain`        a head that is cut is `held` back
//
// So code that fills memory with a message can have a long content (a chunk) in memory of its own,
// as if it had come alone. Only the fields of the message itself are looked at, not those inside
// them. At malformed bytes the scan stops: all that follows is plain, and the reader of the message
// reports what is wrong with it.
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

  // Below, a copy of the content costs no more than memory of its own.
  static constexpr std::size_t kApartBytesMin = std::size_t{8} << 10;

  // For a message in which there is nothing to find.
  explicit FieldScan(std::size_t message_bytes)
      : left_bytes_(message_bytes), content_bytes_(message_bytes) {}
  // For a message whose contents of field `number`, from `apart_bytes_min` on, belong apart.
  FieldScan(std::size_t message_bytes, std::uint32_t number,
            std::size_t apart_bytes_min = kApartBytesMin)
      : left_bytes_(message_bytes), number_(number), apart_bytes_min_(apart_bytes_min) {}

  // What the front of some bytes is. `held` and `plain` stay in the message.
  struct Found {
    Bytes held = {};              // of bytes given before; comes alone, valid until the next call
    Bytes plain = {};             // of those given now
    std::size_t taken_bytes = 0;  // `plain`, and what is held back or belongs to a head that goes
    // Then a content of this size comes, which is not to be given here; 0 for none. Its head is not
    // in `plain`.
    std::size_t apart_bytes = 0;
  };
  // Requires bytes of the message, and at most to its end. Takes all of them, or up to a content
  // that belongs apart, or none where it has `held` to say.
  Found next(Bytes bytes);

  // How many of the bytes to come are plain for certain.
  std::size_t plain_bytes() const { return content_bytes_; }

 private:
  static constexpr std::size_t kHeadBytesMax = 5 + 10;  // a tag and a varint

  struct Head {
    std::size_t size_bytes = 0;
    std::size_t content_bytes = 0;
    bool is_apart = false;  // the content belongs apart
  };
  // The head at the front of `bytes`; none while too little of it is there. Malformed bytes are
  // taken for a head of no bytes, whose content is all that is left. Requires left_bytes >=
  // bytes.size(): the message's, from there on.
  std::optional<Head> read_head(Bytes bytes, std::size_t left_bytes) const;
  // What is held back and `bytes` behind it, as far as a head goes.
  Bytes behind_held(Bytes bytes);

  std::size_t left_bytes_;  // of the message, behind what was taken
  std::uint32_t number_ = 0;
  std::size_t apart_bytes_min_ = kApartBytesMin;
  std::size_t content_bytes_ = 0;  // of the field that is coming, plain
  std::byte held_[kHeadBytesMax] = {};
  std::size_t held_bytes_ = 0;
};

}  // namespace reverie
