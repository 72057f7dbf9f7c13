// Tested in src/reverie/group/share_test.cc.
#include "reverie/reduce/share_segment.h"

#include <algorithm>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/os/memory_size.h"

namespace reverie {
namespace {

constexpr std::size_t kPageBytes = 4096;
// How far an entry may be from the place that its key determines: two cache lines of keys.
constexpr std::size_t kProbes = 16;
// The size of all windows, which must fit into the address space besides other mappings.
constexpr std::size_t kWindowsMax = std::size_t{1} << 40;

constexpr std::size_t whole_pages(std::size_t size_bytes) {
  return (size_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace

std::size_t ShareSegment::window_bytes_for(std::size_t member_count) {
  // More than a member needs at a time, since arrays stay there until the last member has read
  // them.
  const std::size_t wanted = 2 * std::max(memory_size_bytes(), std::size_t{2} << 30);
  return std::min(wanted, kWindowsMax / member_count) / kPageBytes * kPageBytes;
}

std::size_t ShareSegment::windows_offset(std::size_t member_count) {
  return kPageBytes + member_count * whole_pages(sizeof(Table));
}

Result<std::shared_ptr<ShareSegment>> ShareSegment::make(std::size_t member_count,
                                                         std::size_t window_bytes) {
  const std::size_t size = windows_offset(member_count) + member_count * window_bytes;
  REVERIE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::create("reverie-group", size));
  auto* const page = new (memory.bytes().data()) Page{};
  page->nonce = {random_seed(), random_seed()};
  page->member_count = member_count;
  page->window_bytes = window_bytes;
  return std::shared_ptr<ShareSegment>(
      new ShareSegment(std::move(memory), 0, member_count, window_bytes));
}

Result<std::shared_ptr<ShareSegment>> ShareSegment::open(const ShareOffer& offer,
                                                         std::size_t member,
                                                         std::size_t member_count) {
  REVERIE_ASSIGN_OR_RETURN(SharedMemory memory, SharedMemory::open_of(offer.pid, offer.fd));
  const std::size_t size = memory.bytes().size();
  if (size <= windows_offset(member_count)) {
    return unavailable("the shared memory of process {} is of another kind", offer.pid);
  }
  const auto& page = *reinterpret_cast<const Page*>(memory.bytes().data());
  const std::size_t window_bytes = (size - windows_offset(member_count)) / member_count;
  if (page.nonce != offer.nonce || page.member_count != member_count ||
      page.window_bytes != window_bytes || window_bytes % kPageBytes != 0) {
    return unavailable("the shared memory of process {} is another one", offer.pid);
  }
  return std::shared_ptr<ShareSegment>(
      new ShareSegment(std::move(memory), member, member_count, window_bytes));
}

ShareSegment::ShareSegment(SharedMemory memory, std::size_t member, std::size_t member_count,
                           std::size_t window_bytes)
    : memory_(std::move(memory)),
      member_(member),
      member_count_(member_count),
      window_bytes_(window_bytes),
      windows_(memory_.bytes().data() + windows_offset(member_count)) {
  // Not written to the core file of a crashed process.
  (void)madvise(memory_.bytes().data(), memory_.bytes().size(), MADV_DONTDUMP);
}

ShareOffer ShareSegment::offer() const {
  return {getpid(), memory_.fd(), page().nonce};
}

ShareSegment::Table& ShareSegment::table(std::size_t member) const {
  return *reinterpret_cast<Table*>(memory_.bytes().data() + kPageBytes +
                                   member * whole_pages(sizeof(Table)));
}

std::optional<std::size_t> ShareSegment::publish(std::uint64_t key, const ShareEntry& entry) {
  Table& mine = table(member_);
  for (std::size_t i = 0; i < kProbes; ++i) {
    const std::size_t place = (key + i) % kEntries;
    if (mine.keys[place].load(std::memory_order_relaxed) != 0) continue;
    Slot& slot = mine.slots[place];
    slot.signature.store(entry.signature, std::memory_order_relaxed);
    slot.offset.store(entry.offset, std::memory_order_relaxed);
    slot.size_bytes.store(entry.size_bytes, std::memory_order_relaxed);
    slot.state.store(static_cast<std::uint32_t>(ShareState::kBrought), std::memory_order_relaxed);
    mine.keys[place].store(key, std::memory_order_release);
    // At least one of two members that publish at once sees both: it rings.
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return place;
  }
  return std::nullopt;
}

void ShareSegment::set_state(std::size_t place, ShareState state) {
  table(member_).slots[place].state.store(static_cast<std::uint32_t>(state),
                                          std::memory_order_release);
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void ShareSegment::withdraw(std::size_t place) {
  table(member_).keys[place].store(0, std::memory_order_release);
  // Later writes to the window are not seen by members that still see the entry after reading.
  std::atomic_thread_fence(std::memory_order_seq_cst);
}

void ShareSegment::release_window() {
  const std::span<std::byte> mine = window();
  (void)madvise(mine.data(), mine.size(), MADV_REMOVE);
}

std::optional<std::size_t> ShareSegment::find(std::size_t member, std::uint64_t key) const {
  const Table& theirs = table(member);
  for (std::size_t i = 0; i < kProbes; ++i) {
    const std::size_t place = (key + i) % kEntries;
    if (theirs.keys[place].load(std::memory_order_acquire) == key) return place;
  }
  return std::nullopt;
}

ShareEntry ShareSegment::entry(std::size_t member, std::size_t place) const {
  const Slot& slot = table(member).slots[place];
  return {slot.signature.load(std::memory_order_relaxed),
          slot.offset.load(std::memory_order_relaxed),
          slot.size_bytes.load(std::memory_order_relaxed)};
}

std::optional<ShareState> ShareSegment::state(std::size_t member, std::size_t place,
                                              std::uint64_t key) const {
  // Earlier reads of its window happen before this.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  const Table& theirs = table(member);
  const std::uint32_t state = theirs.slots[place].state.load(std::memory_order_acquire);
  if (theirs.keys[place].load(std::memory_order_acquire) != key) return std::nullopt;
  if (state < 1 || state > 3) return std::nullopt;
  return static_cast<ShareState>(state);
}

void ShareSegment::ring() {
  page().bell.fetch_add(1);
  if (page().sleepers.load() > 0) futex_wake_all(page().bell);
}

void ShareSegment::wait(std::uint32_t seen, Duration at_most) {
  page().sleepers.fetch_add(1);
  futex_wait(page().bell, seen, at_most);
  page().sleepers.fetch_sub(1);
}

}  // namespace reverie
