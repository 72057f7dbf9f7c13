// GuardedMapping: a file's pages in memory, whose failure does not end the process.
//
// A store into a mapped page fails with SIGBUS if the disk failed, or the file was cut. Then the
// page is replaced by one that no file lies behind, the store succeeds there, and is_lost() tells.
// Readers find what the file has, as far as it can be read.
//
// A GuardedRange does the same for addresses where its owner maps parts of a file itself, and tells
// the owner of each page.
//
// The first one installs a handler for SIGBUS, which passes on what is not about such a page to the
// handler that was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace reverie {

// Thread-safe. At most kMost of them at a time.
class GuardedMapping {
 public:
  static constexpr std::size_t kMost = 256;  // with all GuardedRanges

  // Maps the beginning of a file, to read and write. Keeps a copy of `fd`. Null, and errno, on
  // failure; ENOMEM if there are kMost already.
  static std::unique_ptr<GuardedMapping> map(int fd, std::size_t size_bytes);
  GuardedMapping(const GuardedMapping&) = delete;
  GuardedMapping& operator=(const GuardedMapping&) = delete;
  ~GuardedMapping();

  std::span<std::byte> bytes() const { return {at_, size_bytes_}; }
  // Whether something was written that the file may not have.
  bool is_lost() const;

 private:
  GuardedMapping(std::byte* at, std::size_t size_bytes, std::size_t slot)
      : at_(at), size_bytes_(size_bytes), slot_(slot) {}

  std::byte* const at_;
  const std::size_t size_bytes_;
  const std::size_t slot_;
};

// Addresses at which the pages of a file are mapped, each at its offset in the file. Thread-safe.
class GuardedRange {
 public:
  // Both run in a signal handler, one at a time in the process.
  class Owner {
   public:
    virtual ~Owner() = default;
    // Whether the page was replaced already: another thread has met it, too.
    virtual bool is_replaced(std::size_t offset) noexcept = 0;
    // Right before the page is replaced. `is_whole`: all that the file has of it was read, so that
    // only what is written from now on does not reach the file.
    virtual void on_replace(std::size_t offset, bool is_whole) noexcept = 0;
  };

  // `fd` and `owner` outlive it. Null, and errno, on failure; ENOMEM if there are
  // GuardedMapping::kMost already.
  static std::unique_ptr<GuardedRange> guard(std::byte* at, std::size_t size_bytes, int fd,
                                             Owner& owner);
  GuardedRange(const GuardedRange&) = delete;
  GuardedRange& operator=(const GuardedRange&) = delete;
  ~GuardedRange();

 private:
  explicit GuardedRange(std::size_t slot) : slot_(slot) {}

  const std::size_t slot_;
};

}  // namespace reverie
