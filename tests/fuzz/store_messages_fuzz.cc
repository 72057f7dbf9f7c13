// Reads any bytes as what a store's client and server send each other: they are read or refused,
// memory stays within its bound, and the rows of items are inside of their chunks.
//
// Input: one byte for the kind of message, two for how much of the rest is its bulk, and the
// message.
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "reverie/adapters/peer/insert_mirror.h"
#include "reverie/store_messages/store_wire.h"
#include "tests/fuzz/input.h"

namespace {

using namespace reverie;

constexpr std::size_t kKeptBytesMax = std::size_t{1} << 20;

void require(bool holds) {
  if (!holds) std::abort();
}

const wire::ColumnNames& no_names(std::string_view) {
  static const auto* const none = new wire::ColumnNames;
  return *none;
}

void take_inserts(const Payload& payload) {
  InsertMirror mirror(
      {.memory = Allocator::heap(), .names = no_names, .kept_bytes_max = kKeptBytesMax});
  std::vector<InsertMirror::Taken> items;
  // The second round finds the chunks of the first.
  for (int round = 0; round < 2; ++round) {
    if (!mirror.take(payload, items).ok()) break;
  }
  require(mirror.kept_bytes() <= kKeptBytesMax);
  for (const InsertMirror::Taken& taken : items) {
    for (const Piece& piece : taken.item.trajectory.pieces()) {
      require(piece.offset + piece.length <= piece.chunk->rows());
      require(piece.chunk->rows() <= piece.chunk->capacity());
    }
    require(check_trajectory(taken.item.trajectory.view()).ok());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fuzz::Input input(data, size);
  const auto kind = input.take<std::uint8_t>();
  const std::size_t bulk_size = input.take<std::uint16_t>();
  const auto rest = input.rest();
  const auto head = rest.first(rest.size() - std::min(bulk_size, rest.size()));
  Payload payload;
  payload.head.assign(head.begin(), head.end());
  if (head.size() < rest.size()) payload.bulk.push_back({rest.subspan(head.size()), nullptr});
  switch (kind % 11) {
    case 0:
      take_inserts(payload);
      break;
    case 1:
      (void)store_wire::read_sample(payload).ok();
      break;
    case 2:
      (void)store_wire::read_mutate(payload).ok();
      break;
    case 3:
      (void)store_wire::read_lookup(payload).ok();
      break;
    case 4:
      (void)store_wire::read_infos(payload).ok();
      break;
    case 5:
      (void)store_wire::read_report(payload).ok();
      break;
    case 6:
      (void)store_wire::read_part(payload).ok();
      break;
    case 7:
      (void)store_wire::read_inserted(payload).ok();
      break;
    case 8:
      (void)store_wire::read_found(payload).status.ok();
      break;
    case 9:
      (void)store_wire::read_note(payload).ok();
      break;
    default:
      (void)store_wire::read_returned(payload).ok();
  }
  return 0;
}
