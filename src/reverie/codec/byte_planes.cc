#include "reverie/codec/byte_planes.h"

#include <cstdint>
#include <cstring>

#include "reverie/base/check.h"

namespace reverie {
namespace {

template <typename Word>
Word load(const std::byte* at) {
  Word word;
  std::memcpy(&word, at, sizeof(word));
  return word;
}

template <typename Word, bool kFloat>
void split(const PlaneShape& shape, const std::byte* from, std::byte* to) {
  const std::size_t count = shape.rows * shape.row_elements;
  for (std::size_t i = 0; i < count; ++i) {
    const Word before = i < shape.row_elements
                            ? Word{0}
                            : load<Word>(from + (i - shape.row_elements) * sizeof(Word));
    const Word word = load<Word>(from + i * sizeof(Word));
    const Word change = static_cast<Word>(kFloat ? word ^ before : word - before);
    for (std::size_t b = 0; b < sizeof(Word); ++b) {
      to[b * count + i] = static_cast<std::byte>(change >> (8 * b));
    }
  }
}

template <typename Word, bool kFloat>
void join(const PlaneShape& shape, const std::byte* from, std::byte* to) {
  const std::size_t count = shape.rows * shape.row_elements;
  for (std::size_t i = 0; i < count; ++i) {
    Word change = 0;
    for (std::size_t b = 0; b < sizeof(Word); ++b) {
      change = static_cast<Word>(change | static_cast<Word>(from[b * count + i]) << (8 * b));
    }
    const Word before =
        i < shape.row_elements ? Word{0} : load<Word>(to + (i - shape.row_elements) * sizeof(Word));
    const Word word = static_cast<Word>(kFloat ? change ^ before : change + before);
    std::memcpy(to + i * sizeof(Word), &word, sizeof(word));
  }
}

template <typename Visit>
void with_word(const PlaneShape& shape, Visit visit) {
  switch (shape.element_bytes) {
    case 2:
      return visit(std::uint16_t{});
    case 4:
      return visit(std::uint32_t{});
    case 8:
      return visit(std::uint64_t{});
    default:
      REVERIE_CHECK(false);
  }
}

}  // namespace

void to_planes(const PlaneShape& shape, const std::byte* from, std::byte* to) {
  with_word(shape, [&]<typename Word>(Word) {
    shape.is_float ? split<Word, true>(shape, from, to) : split<Word, false>(shape, from, to);
  });
}

void from_planes(const PlaneShape& shape, const std::byte* from, std::byte* to) {
  with_word(shape, [&]<typename Word>(Word) {
    shape.is_float ? join<Word, true>(shape, from, to) : join<Word, false>(shape, from, to);
  });
}

}  // namespace reverie
