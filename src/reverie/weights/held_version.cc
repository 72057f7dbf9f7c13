// Tested in weights_core_test.cc.
#include "reverie/weights/held_version.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "reverie/codec/crc32c.h"
#include "reverie/tensor/buffer.h"

namespace reverie {
namespace {

std::span<const std::byte> bulk_of(const WeightsVersion& version) {
  return version.value.bulk.empty() ? std::span<const std::byte>()
                                    : version.value.bulk.front().bytes;
}

std::span<const std::byte> block_of(std::span<const std::byte> bulk, std::size_t block) {
  const std::size_t at = block * kChangedBlock;
  return bulk.subspan(at, std::min(kChangedBlock, bulk.size() - at));
}

Result<std::shared_ptr<Buffer>> allocated(std::size_t size_bytes) {
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer,
                           Allocator::heap().allocate(std::max<std::size_t>(size_bytes, 64)));
  return std::make_shared<Buffer>(std::move(buffer));
}

}  // namespace

HeldVersion held_version(std::uint64_t version, std::vector<std::byte> head, BulkPiece bulk) {
  auto about = std::make_shared<WeightsVersion>();
  about->version = version;
  about->value.head = std::move(head);
  if (!bulk.bytes.empty()) about->value.bulk.push_back(std::move(bulk));
  HeldVersion held;
  held.about = std::move(about);
  return held;
}

std::optional<WeightsChanges> find_changes(const WeightsVersion& older,
                                           const WeightsVersion& newer) {
  const std::span<const std::byte> before = bulk_of(older);
  const std::span<const std::byte> after = bulk_of(newer);
  if (older.value.head != newer.value.head || before.size() != after.size() || after.empty()) {
    return std::nullopt;
  }
  WeightsChanges changes;
  changes.base = older.version;
  const std::size_t count = (after.size() + kChangedBlock - 1) / kChangedBlock;
  std::size_t size = 0;
  for (std::size_t block = 0; block < count; ++block) {
    const auto now = block_of(after, block);
    if (std::memcmp(now.data(), block_of(before, block).data(), now.size()) == 0) continue;
    changes.blocks.push_back(static_cast<std::uint32_t>(block));
    size += now.size();
    if (2 * size > after.size()) return std::nullopt;
  }
  auto kept = allocated(size);
  if (!kept.ok()) return std::nullopt;
  std::size_t at = 0;
  for (const std::uint32_t block : changes.blocks) {
    const auto now = block_of(after, block);
    std::memcpy((*kept)->data() + at, now.data(), now.size());
    at += now.size();
  }
  changes.bytes = {(*kept)->bytes().first(size), *kept};
  changes.checksum = crc32c(after);
  return changes;
}

Result<HeldVersion> apply_changes(const WeightsVersion& older, std::uint64_t version,
                                  const std::shared_ptr<const WeightsChanges>& changes) {
  const std::span<const std::byte> before = bulk_of(older);
  REVERIE_ASSIGN_OR_RETURN(const std::shared_ptr<Buffer> kept, allocated(before.size()));
  if (!before.empty()) std::memcpy(kept->data(), before.data(), before.size());
  std::span<const std::byte> left = changes->bytes.bytes;
  const std::size_t count = (before.size() + kChangedBlock - 1) / kChangedBlock;
  for (const std::uint32_t block : changes->blocks) {
    const std::size_t at = std::size_t{block} * kChangedBlock;
    const std::size_t size = block < count ? std::min(kChangedBlock, before.size() - at) : 0;
    if (size == 0 || left.size() < size) {
      return data_loss("changed weights have a block {} of {}", block, count);
    }
    std::memcpy(kept->data() + at, left.data(), size);
    left = left.subspan(size);
  }
  const std::span<const std::byte> whole = kept->bytes().first(before.size());
  if (!left.empty() || crc32c(whole) != changes->checksum) {
    return data_loss("version {} of the weights is not based on version {} here", version,
                     older.version);
  }
  HeldVersion held = held_version(version, older.value.head, {whole, kept});
  held.changes = changes;
  return held;
}

}  // namespace reverie
