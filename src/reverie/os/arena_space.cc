#include "reverie/os/arena_space.h"

#include "reverie/base/check.h"

namespace reverie {
namespace {

constexpr std::size_t rounded_up(std::size_t size, std::size_t unit) {
  return (size + unit - 1) / unit * unit;
}

}  // namespace

ArenaSpace::ArenaSpace(std::size_t begin, std::size_t end) : begin_(begin) {
  REVERIE_CHECK(begin % kUnit == 0 && end % kUnit == 0 && begin <= end);
  if (begin < end) add_free(begin, end - begin);
}

std::optional<std::size_t> ArenaSpace::take(std::size_t size_bytes, std::size_t ahead,
                                            std::size_t alignment) {
  REVERIE_CHECK(size_bytes > 0 && ahead % kUnit == 0 && alignment % kUnit == 0 && alignment > 0);
  if (free_.empty() || size_bytes > free_by_size_.rbegin()->first) return std::nullopt;
  const std::size_t size = rounded_up(size_bytes, kUnit);
  for (auto place = free_by_size_.lower_bound({size, 0}); place != free_by_size_.end(); ++place) {
    const auto [part_size, part] = *place;
    const std::size_t offset = rounded_up(part + ahead, alignment) - ahead;
    if (offset - part > part_size - size) continue;
    drop_free(free_.find(part));
    if (offset > part) add_free(part, offset - part);
    const std::size_t rest = part_size - size - (offset - part);
    if (rest > 0) add_free(offset + size, rest);
    used_.emplace(offset, size);
    used_bytes_ += size;
    return offset;
  }
  return std::nullopt;
}

void ArenaSpace::give_back(std::size_t offset) {
  const auto used = used_.find(offset);
  REVERIE_CHECK(used != used_.end());
  std::size_t begin = offset;
  std::size_t size = used->second;
  used_bytes_ -= size;
  used_.erase(used);
  auto next = free_.lower_bound(begin);
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->first + before->second == begin) {
      begin = before->first;
      size += before->second;
      drop_free(before);
    }
  }
  if (next != free_.end() && begin + size == next->first) {
    size += next->second;
    drop_free(next);
  }
  add_free(begin, size);
}

std::size_t ArenaSpace::used_end() const {
  return used_.empty() ? begin_ : used_.rbegin()->first + used_.rbegin()->second;
}

void ArenaSpace::add_free(std::size_t offset, std::size_t size_bytes) {
  free_.emplace(offset, size_bytes);
  free_by_size_.emplace(size_bytes, offset);
}

void ArenaSpace::drop_free(std::map<std::size_t, std::size_t>::iterator part) {
  free_by_size_.erase({part->second, part->first});
  free_.erase(part);
}

}  // namespace reverie
