// Tested in weights_test.cc.
#include "reverie/weights/version_memory.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/tensor/buffer.h"

namespace reverie {
namespace {

// The head follows, and the bulk at the next multiple of its alignment.
struct VersionHeader {
  std::array<std::uint64_t, 2> nonce;
  std::uint64_t version;
  std::uint64_t head_bytes;
  std::uint64_t bulk_bytes;
};

std::size_t bulk_offset(std::uint64_t head_bytes) {
  return Payload::padded(sizeof(VersionHeader) + static_cast<std::size_t>(head_bytes));
}

// Calls write(offset, bytes) for the consecutive pieces of the bulk.
template <typename Write>
Status gather_bulk(const Payload& value, Write write) {
  std::size_t at = 0;
  for (const BulkPiece& piece : value.bulk) {
    at = Payload::padded(at);
    REVERIE_RETURN_IF_ERROR(write(at, piece.bytes));
    at += piece.bytes.size();
  }
  return {};
}

}  // namespace

struct VersionMemory::Taken {
  std::shared_ptr<const SharedMemory> memory;
  bool is_new = false;

  Status write(std::size_t offset, std::span<const std::byte> from) const {
    if (is_new) return memory->write(offset, from);
    if (!from.empty()) std::memcpy(memory->bytes().data() + offset, from.data(), from.size());
    return {};
  }
};

Result<VersionMemory::Taken> VersionMemory::take(std::size_t size_bytes) {
  std::shared_ptr<const SharedMemory> found;
  // One spare memory is enough; one of another size will not be needed again.
  std::erase_if(made_, [&](const std::shared_ptr<const SharedMemory>& memory) {
    if (memory->bytes().size() != size_bytes) return true;
    if (memory == spare_ || !memory->try_reserve()) return false;
    if (found && spare_) return true;
    (found ? spare_ : found) = memory;
    return false;
  });
  if (spare_ && spare_->bytes().size() != size_bytes) spare_ = nullptr;
  if (!found) found = std::exchange(spare_, nullptr);
  if (found) return Taken{std::move(found), false};
  REVERIE_ASSIGN_OR_RETURN(SharedMemory made, SharedMemory::create("reverie-weights", size_bytes));
  found = std::make_shared<const SharedMemory>(std::move(made));
  (void)found->try_reserve();
  made_.push_back(found);
  return Taken{std::move(found), true};
}

Result<HeldVersion> VersionMemory::copy(std::uint64_t version, const Payload& value) {
  const VersionHeader header{
      {random_seed(), random_seed()}, version, value.head.size(), value.bulk_bytes()};
  const std::size_t offset = bulk_offset(header.head_bytes);
  REVERIE_ASSIGN_OR_RETURN(const Taken made,
                           take(offset + std::max<std::size_t>(header.bulk_bytes, 1)));
  REVERIE_RETURN_IF_ERROR(made.write(0, std::as_bytes(std::span(&header, 1))));
  REVERIE_RETURN_IF_ERROR(made.write(sizeof(header), value.head));
  REVERIE_RETURN_IF_ERROR(gather_bulk(value, [&](std::size_t at, std::span<const std::byte> bytes) {
    return made.write(offset + at, bytes);
  }));
  made.memory->end_reservation();
  return map_version({getpid(), made.memory->fd(), header.nonce}, version);
}

Result<HeldVersion> map_version(const WeightsPlace& place, std::uint64_t version) {
  REVERIE_ASSIGN_OR_RETURN(SharedMemory mapped,
                           SharedMemory::open_of(place.pid, static_cast<int>(place.fd),
                                                 SharedMemory::Mapping::kCopyOnWrite));
  const auto another = [] { return unavailable("the memory of the weights has been replaced"); };
  // Memory that was read before it is held may have been overwritten.
  if (!mapped.try_hold()) return another();
  auto memory = std::make_shared<const SharedMemory>(std::move(mapped));
  const std::span<std::byte> bytes = memory->bytes();
  VersionHeader header{};
  if (bytes.size() < sizeof(header)) return another();
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.nonce != place.nonce || header.version != version ||
      header.head_bytes > bytes.size() || header.bulk_bytes > bytes.size() ||
      bulk_offset(header.head_bytes) + header.bulk_bytes > bytes.size()) {
    return another();
  }
  const auto* const head = bytes.data() + sizeof(header);
  HeldVersion held =
      held_version(version, {head, head + header.head_bytes},
                   {bytes.subspan(bulk_offset(header.head_bytes), header.bulk_bytes), memory});
  held.place = {getpid(), memory->fd(), header.nonce};
  held.memory = std::move(memory);
  return held;
}

Result<HeldVersion> copy_version(std::uint64_t version, const Payload& value) {
  const std::size_t bulk_bytes = value.bulk_bytes();
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer,
                           Allocator::heap().allocate(std::max<std::size_t>(bulk_bytes, 64)));
  auto kept = std::make_shared<Buffer>(std::move(buffer));
  REVERIE_RETURN_IF_ERROR(gather_bulk(value, [&](std::size_t at, std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(kept->data() + at, bytes.data(), bytes.size());
    return Status();
  }));
  return held_version(version, value.head, {kept->bytes().first(bulk_bytes), kept});
}

}  // namespace reverie
