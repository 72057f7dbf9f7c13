// Which parts of an arena are in use. Knows offsets only, no memory.
//
//     0        64            4160    8192                    size
//     [ used  ][ free        ][ used ][ free . . . . . . . . ]
//
// take() cuts the smallest free part that is large enough, the first among equals: it is warm. Free
// neighbours are merged.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace reverie {

// Not thread-safe. A call costs O(log n) of the free parts, except that an alignment beyond
// kUnit may look at several.
class ArenaSpace {
 public:
  static constexpr std::size_t kUnit = 64;  // parts begin and end at multiples of it

  // Everything from `begin` to `end` is free.
  ArenaSpace(std::size_t begin, std::size_t end);

  // A free part of at least `size_bytes`, whose offset plus `ahead` is a multiple of `alignment`;
  // none if none fits. Requires size_bytes > 0, and multiples of kUnit for `ahead` and `alignment`.
  std::optional<std::size_t> take(std::size_t size_bytes, std::size_t ahead, std::size_t alignment);
  // Frees what take() gave. Requires that it is in use.
  void give_back(std::size_t offset);

  std::size_t used_bytes() const { return used_bytes_; }
  // Free parts: offset to size.
  const std::map<std::size_t, std::size_t>& free_parts() const { return free_; }
  // Nothing is in use at or after this offset.
  std::size_t used_end() const;

 private:
  void add_free(std::size_t offset, std::size_t size_bytes);
  void drop_free(std::map<std::size_t, std::size_t>::iterator part);

  const std::size_t begin_;
  std::map<std::size_t, std::size_t> free_;                     // offset to size
  std::set<std::pair<std::size_t, std::size_t>> free_by_size_;  // size, offset
  std::map<std::size_t, std::size_t> used_;                     // offset to size
  std::size_t used_bytes_ = 0;
};

}  // namespace reverie
