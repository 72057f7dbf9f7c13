// Versions of a network's parameters that many threads read while one thread publishes.
//
//     blocks     [ v7 ] [ v9 ] [ v8 ] [ ... ]     two more than there are readers
//     latest     ------->                          what a reader takes next
//     readers    7  9  -                           each names the block it reads, or none
//
// A reader writes the number of the block that it reads into its own slot; the publisher copies
// into a block that no reader uses and that is not the latest. With two more blocks than readers
// there is always one: neither side ever waits for the other, takes a lock, counts references or
// allocates. A reader sees one whole version, unchanged for as long as it holds it. An actor that
// holds a version for an hour delays no other.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/nn/parameters.h"

namespace reverie::nn {

class PublishedParameters {
 public:
  // A version that a reader holds; valid until the reader's release() or next acquire().
  struct Version {
    const Parameters* parameters = nullptr;
    std::uint64_t version = 0;
  };

  // Starts with `first`, version 0, for readers 0 to reader_count - 1. Requires at least one.
  PublishedParameters(const Parameters& first, std::size_t reader_count);

  // The latest version, for the reader's thread. Requires reader < reader_count, and that no other
  // thread uses that number. Repeats only if a version was published in between: lock-free.
  Version acquire(std::size_t reader);
  void release(std::size_t reader);

  // Copies `parameters` into a free block and makes it the latest; returns its number, one more
  // than the last. Wait-free. Only one thread at a time.
  std::uint64_t publish(const Parameters& parameters) { return publish(parameters, version() + 1); }
  // The same with a number of the caller's, greater than the last.
  std::uint64_t publish(const Parameters& parameters, std::uint64_t version);

  // The number of the latest version. Any thread.
  std::uint64_t version() const { return version_.load(std::memory_order_acquire); }

 private:
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};
  struct Block {
    Parameters parameters;
    std::uint64_t version = 0;
  };
  struct alignas(64) Slot {
    std::atomic<std::uint32_t> block{kNone};
  };

  std::vector<Block> blocks_;
  std::unique_ptr<Slot[]> slots_;
  std::size_t reader_count_;
  std::atomic<std::uint32_t> latest_{0};
  std::atomic<std::uint64_t> version_{0};
};

}  // namespace reverie::nn
