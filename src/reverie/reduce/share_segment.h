// The memory that the members of a group on one host share for one membership.
//
//     page      [ nonce ][ members, window ][ bell ][ sleepers ]
//     tables    member 0 [ keys ][ entries ]    member 1 [ keys ][ entries ]    ...
//     windows   member 0 [ arrays            ]  member 1 [ arrays            ]  ...
//
// The first member creates it, and tells the others how to find it: a process, a descriptor, and
// 128 random bits, which are in the memory if it is the right one. Each member writes its own table
// and its own window, and reads those of the others: an entry says which array the member
// contributes to which round, where it is, and the state of the round there. Data of another member
// is copied, then checked. Windows are far larger than what is ever used: pages are allocated with
// their first use, and freed by release_window().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/os/futex.h"
#include "reverie/os/shared_memory.h"

namespace reverie {

// How to find a segment.
struct ShareOffer {
  std::int64_t pid = 0;
  int fd = -1;
  std::array<std::uint64_t, 2> nonce{};
};

// The state of a round on a member.
enum class ShareState : std::uint32_t {
  kBrought = 1,  // its array is in its window
  kReduced = 2,  // its parts of the result are too, in place
  kTaken = 3,    // it has the whole result, and reads no more
};

// A member's entry for a round.
struct ShareEntry {
  std::uint64_t signature = 0;
  std::uint64_t offset = 0;  // in its window
  std::uint64_t size_bytes = 0;
};

// Thread-safe, except where noted.
class ShareSegment {
 public:
  static constexpr std::size_t kMembersMax = 64;
  // The most concurrent rounds in a member's table.
  static constexpr std::size_t kEntries = 1024;

  // RESOURCE_EXHAUSTED if there is no memory. Requires 2 to kMembersMax members, and a window size
  // that is a multiple of the page size.
  static Result<std::shared_ptr<ShareSegment>> make(std::size_t member_count,
                                                    std::size_t window_bytes);
  // UNAVAILABLE if this process cannot access it.
  static Result<std::shared_ptr<ShareSegment>> open(const ShareOffer& offer, std::size_t member,
                                                    std::size_t member_count);
  // The window size for this host's memory.
  static std::size_t window_bytes_for(std::size_t member_count);

  ShareOffer offer() const;
  std::size_t member() const { return member_; }
  std::size_t member_count() const { return member_count_; }
  std::size_t window_bytes() const { return window_bytes_; }

  // --- This member's table and window. Only one thread at a time. Returns the entry's index in the
  // table; none if the table is full. Requires key != 0.
  std::optional<std::size_t> publish(std::uint64_t key, const ShareEntry& entry);
  void set_state(std::size_t place, ShareState state);
  void withdraw(std::size_t place);
  std::span<std::byte> window() { return window_of(member_); }
  // Gives the window's pages back to the system; the window then contains zeros.
  void release_window();

  // --- Tables and windows of the others. Whatever they contain, nothing outside the segment is
  // read. The index of the entry with this key.
  std::optional<std::size_t> find(std::size_t member, std::uint64_t key) const;
  // A copy, in which any field may be wrong.
  ShareEntry entry(std::size_t member, std::size_t place) const;
  // None if it now has another key, or an unknown state.
  std::optional<ShareState> state(std::size_t member, std::size_t place, std::uint64_t key) const;
  // Requires offset + size_bytes <= window_bytes().
  const std::byte* data(std::size_t member, std::uint64_t offset) const {
    return windows_ + member * window_bytes_ + offset;
  }

  // --- The bell, which wakes all members.
  std::uint32_t seen() const { return page().bell.load(); }
  void ring();
  // Waits for `at_most`, or until it rings after seen(); may return early.
  void wait(std::uint32_t seen, Duration at_most);
  bool spin(std::uint32_t seen, Duration at_most) const {
    return spin_while_equal(page().bell, seen, at_most);
  }

 private:
  struct Page {
    std::array<std::uint64_t, 2> nonce;
    std::uint64_t member_count;
    std::uint64_t window_bytes;
    alignas(64) FutexWord bell;
    alignas(64) std::atomic<std::uint32_t> sleepers;
  };
  struct Slot {
    std::atomic<std::uint64_t> signature;
    std::atomic<std::uint64_t> offset;
    std::atomic<std::uint64_t> size_bytes;
    std::atomic<std::uint32_t> state;
    std::array<std::byte, 36> unused;
  };
  static_assert(sizeof(Slot) == 64 && std::atomic<std::uint64_t>::is_always_lock_free);
  struct Table {
    std::array<std::atomic<std::uint64_t>, kEntries> keys;  // 0: free
    std::array<Slot, kEntries> slots;
  };

  ShareSegment(SharedMemory memory, std::size_t member, std::size_t member_count,
               std::size_t window_bytes);
  static std::size_t windows_offset(std::size_t member_count);
  Page& page() const { return *reinterpret_cast<Page*>(memory_.bytes().data()); }
  Table& table(std::size_t member) const;
  std::span<std::byte> window_of(std::size_t member) {
    return {windows_ + member * window_bytes_, window_bytes_};
  }

  const SharedMemory memory_;
  const std::size_t member_;
  const std::size_t member_count_;
  const std::size_t window_bytes_;
  std::byte* const windows_;
};

}  // namespace reverie
