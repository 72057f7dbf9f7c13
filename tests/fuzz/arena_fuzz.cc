// Reads an arena that another process shares, with any bytes in it and any ranges: they are read or
// refused, and nothing outside of the memory is touched.
//
// Input: how many bytes fill the memory (2 bytes), those bytes, then ranges.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "reverie/os/shared_arena.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reverie;
  static const SharedMemory memory =
      std::move(SharedMemory::create("arena-fuzz", 4 * kArenaPageBytes)).value();
  const std::span<std::byte> bytes = memory.bytes();
  fuzz::Input input(data, size);
  const std::size_t given = std::min<std::size_t>(input.take<std::uint16_t>(), bytes.size());
  std::fill(bytes.begin(), bytes.end(), std::byte{0});
  for (std::size_t i = 0; i < given; ++i) bytes[i] = input.take<std::byte>();
  (void)ArenaView::open(memory.fd(), 7).ok();
  // Again with a valid header in front of the bytes.
  const ArenaHeader right{kArenaMagic, 7, bytes.size()};
  std::memcpy(bytes.data(), &right, sizeof(right));
  const auto view = ArenaView::open(memory.fd(), 7);
  if (!view.ok()) std::abort();
  while (!input.rest().empty()) {
    ArenaRange range;
    range.arena = 7 + input.take<std::uint8_t>() / 128;
    range.offset = input.take<std::uint64_t>();
    range.size_bytes = input.take<std::uint64_t>();
    range.generation = input.take<std::uint64_t>();
    const auto found = (*view)->bytes(range);
    if (!found.ok()) continue;
    if (found->size() > bytes.size()) std::abort();
    std::vector<std::byte> copied(found->size());
    if (!(*view)->copy(range, copied).ok()) std::abort();
    if (std::memcmp(copied.data(), found->data(), copied.size()) != 0) std::abort();
  }
  return 0;
}
