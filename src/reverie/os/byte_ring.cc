#include "reverie/os/byte_ring.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "reverie/base/check.h"

namespace reverie {

std::atomic<RingHook> ring_hook{nullptr};

namespace {

void step(RingStep at) {
  const RingHook hook = ring_hook.load(std::memory_order_relaxed);
  if (hook != nullptr) hook(at);
}

RingPage& page_of(std::span<std::byte> memory) {
  REVERIE_CHECK(memory.size() > kRingPageBytes &&
                std::has_single_bit(memory.size() - kRingPageBytes));
  return *reinterpret_cast<RingPage*>(memory.data());
}

// Announces whether this side sleeps, and sees what the other side did before it read that.
void set_sleeps(std::atomic<std::uint32_t>& word) {
  word.store(1, std::memory_order_seq_cst);
  std::atomic_thread_fence(std::memory_order_seq_cst);
  step(RingStep::kSleeps);
}
void set_awake(std::atomic<std::uint32_t>& word) {
  word.store(0, std::memory_order_relaxed);
  step(RingStep::kAwake);
}
bool take(std::atomic<std::uint32_t>& word) {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  return word.load(std::memory_order_relaxed) != 0 && word.exchange(0) != 0;
}

}  // namespace

RingWriter::RingWriter(std::span<std::byte> memory)
    : page_(page_of(memory)),
      ring_(memory.data() + kRingPageBytes),
      size_bytes_(memory.size() - kRingPageBytes) {}

Result<std::size_t> RingWriter::write(std::span<const std::span<const std::byte>> pieces) {
  const std::uint64_t tail = tail_.load(std::memory_order_relaxed);
  const std::uint64_t head = page_.head.load(std::memory_order_acquire);
  if (head < head_seen_ || head > tail) {
    return data_loss("shared memory says that {} bytes were read of {} that were written", head,
                     tail);
  }
  head_seen_ = head;
  std::size_t room = size_bytes_ - static_cast<std::size_t>(tail - head);
  std::uint64_t at = tail;
  for (const std::span<const std::byte> piece : pieces) {
    const std::size_t size = std::min(piece.size(), room);
    const std::size_t begin = static_cast<std::size_t>(at) & (size_bytes_ - 1);
    const std::size_t first = std::min(size, size_bytes_ - begin);
    if (first > 0) std::memcpy(ring_ + begin, piece.data(), first);
    if (size > first) std::memcpy(ring_, piece.data() + first, size - first);
    at += size;
    room -= size;
    if (size < piece.size()) break;
  }
  if (at == tail) return std::size_t{0};
  step(RingStep::kCopied);
  tail_.store(at, std::memory_order_relaxed);
  page_.tail.store(at, std::memory_order_release);
  step(RingStep::kTail);
  return static_cast<std::size_t>(at - tail);
}

bool RingWriter::has_room() const {
  const std::uint64_t used =
      tail_.load(std::memory_order_relaxed) - page_.head.load(std::memory_order_acquire);
  return used <= size_bytes_ / 4 * 3;
}

bool RingWriter::needs_doorbell() {
  if (!take(page_.reader_sleeps)) return false;
  step(RingStep::kReaderWoken);
  return true;
}

bool RingWriter::request_doorbell() {
  set_sleeps(page_.writer_sleeps);
  if (!has_room()) return true;
  clear_doorbell_request();
  return false;
}

void RingWriter::clear_doorbell_request() {
  set_awake(page_.writer_sleeps);
}

RingReader::RingReader(std::span<std::byte> memory)
    : page_(page_of(memory)),
      ring_(memory.data() + kRingPageBytes),
      size_bytes_(memory.size() - kRingPageBytes) {}

Result<std::size_t> RingReader::read(std::span<std::byte> into) {
  const std::uint64_t head = head_.load(std::memory_order_relaxed);
  const std::uint64_t tail = page_.tail.load(std::memory_order_acquire);
  if (tail < tail_seen_ || tail - head > size_bytes_) {
    return data_loss("shared memory says that {} bytes were written, of which {} were read", tail,
                     head);
  }
  tail_seen_ = tail;
  const std::size_t size = std::min(static_cast<std::size_t>(tail - head), into.size());
  if (size == 0) return size;
  const std::size_t begin = static_cast<std::size_t>(head) & (size_bytes_ - 1);
  const std::size_t first = std::min(size, size_bytes_ - begin);
  std::memcpy(into.data(), ring_ + begin, first);
  if (size > first) std::memcpy(into.data() + first, ring_, size - first);
  step(RingStep::kRead);
  head_.store(head + size, std::memory_order_relaxed);
  page_.head.store(head + size, std::memory_order_release);
  step(RingStep::kHead);
  return size;
}

bool RingReader::has_input() const {
  return page_.tail.load(std::memory_order_acquire) != head_.load(std::memory_order_relaxed);
}

bool RingReader::needs_doorbell() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (page_.writer_sleeps.load(std::memory_order_relaxed) == 0) return false;
  const std::uint64_t left =
      page_.tail.load(std::memory_order_relaxed) - head_.load(std::memory_order_relaxed);
  if (left > size_bytes_ / 2 || page_.writer_sleeps.exchange(0) == 0) return false;
  step(RingStep::kWriterWoken);
  return true;
}

bool RingReader::request_doorbell() {
  set_sleeps(page_.reader_sleeps);
  if (!has_input()) return true;
  clear_doorbell_request();
  return false;
}

void RingReader::clear_doorbell_request() {
  set_awake(page_.reader_sleeps);
}

}  // namespace reverie
