// Uses a ring while another process writes any bytes to its memory: positions are refused or lead
// to bytes of the ring, and a reader never gets more bytes than it has room for.
//
// Input: turns; each writes a word anywhere to the control page or the ring, then reads, writes or
// queries it.
#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "reverie/os/byte_ring.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace reverie;
  constexpr std::size_t kRing = 1024;
  alignas(4096) static std::array<std::byte, kRingPageBytes + kRing> memory;
  memory.fill(std::byte{0});
  RingWriter writer(memory);
  RingReader reader(memory);
  fuzz::Input input(data, size);
  std::array<std::byte, kRing> bytes{};
  while (!input.rest().empty()) {
    const auto turn = input.take<std::uint8_t>();
    const std::size_t at = input.take<std::uint16_t>() % (memory.size() / 8);
    const auto word = input.take<std::uint64_t>();
    // Half of the turns write to the first cache lines, where the shared control words are.
    const std::size_t place = turn < 128 ? at % 5 * 64 : at * 8;
    if (turn % 2 == 0) std::memcpy(&memory[place], &word, sizeof(word));
    const std::span<std::byte> part = std::span(bytes).first(at % (kRing + 1));
    const std::span<const std::byte> piece = part;
    switch (turn / 2 % 4) {
      case 0: {
        const auto got = reader.read(part);
        if (got.ok() && *got > part.size()) std::abort();
        break;
      }
      case 1: {
        const auto put = writer.write({&piece, 1});
        if (put.ok() && *put > piece.size()) std::abort();
        break;
      }
      case 2:
        (void)reader.needs_doorbell();
        if (!reader.request_doorbell()) reader.clear_doorbell_request();
        break;
      default:
        (void)writer.needs_doorbell();
        if (!writer.request_doorbell()) writer.clear_doorbell_request();
        break;
    }
  }
  return 0;
}
