#include "reverie/base/machine.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <numeric>

#include "reverie/base/clock.h"
#include "reverie/base/random.h"

namespace reverie {
namespace {

constexpr std::size_t kSizeMin = 4096;
constexpr std::size_t kLineBytes = 64;
constexpr Duration kWindow = std::chrono::milliseconds(10);
constexpr int kWindows = 5;

struct alignas(kLineBytes) Line {
  std::uint64_t next = 0;
};

// Keeps the compiler from seeing that a result is not used.
template <typename T>
void keep(const T& value) {
  asm volatile("" : : "r,m"(value) : "memory");
}

// The best of some windows, in seconds a call: what disturbs only ever makes it slower.
template <typename Work>
double best_time(Work work) {
  const Clock& clock = Clock::system();
  double best = 0;
  for (int window = 0; window < kWindows; ++window) {
    const TimePoint begin = clock.now();
    std::int64_t calls = 0;
    Duration spent{};
    do {
      work();
      ++calls;
      spent = clock.now() - begin;
    } while (spent < kWindow);
    const double time = to_seconds(spent) / static_cast<double>(calls);
    best = best == 0 ? time : std::min(best, time);
  }
  return best;
}

// Links the lines into one ring, in an order that no prefetcher follows.
void link(Line* lines, std::size_t count) {
  std::unique_ptr<std::uint32_t[]> order(new std::uint32_t[count]);
  std::iota(order.get(), order.get() + count, 0u);
  Random random(std::uint64_t{7});
  for (std::size_t i = count - 1; i > 0; --i) std::swap(order[i], order[random.below(i + 1)]);
  for (std::size_t i = 0; i < count; ++i) lines[order[i]].next = order[(i + 1) % count];
}

}  // namespace

Result<MemoryLimits> measure_memory(std::size_t size_bytes) {
  if (size_bytes < kSizeMin) {
    return invalid_argument("size_bytes is {}; it must be at least {}", size_bytes, kSizeMin);
  }
  const std::size_t count = size_bytes / kLineBytes;
  std::unique_ptr<Line[]> lines;
  if (count <= UINT32_MAX) lines.reset(new (std::nothrow) Line[2 * count]);
  if (!lines) return resource_exhausted("there is no memory for twice {} bytes", size_bytes);

  link(lines.get(), count);
  std::uint64_t at = 0;
  const auto loads = static_cast<int>(std::min<std::size_t>(count, 100'000));
  const double round = best_time([&] {
    for (int i = 0; i < loads; ++i) at = lines[at].next;
    keep(at);
  });
  const double copy = best_time([&] {
    std::memcpy(static_cast<void*>(lines.get() + count), lines.get(), count * kLineBytes);
    keep(lines.get());
  });
  return MemoryLimits{.copy_bytes_per_s = static_cast<double>(count * kLineBytes) / copy,
                      .load_ns = 1e9 * round / loads};
}

}  // namespace reverie
