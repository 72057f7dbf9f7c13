// Spares: objects that calls borrow and return, so that their memory is reused.
//
//     std::unique_ptr<Scratch> scratch = spares.take();
//     ...
//     spares.give_back(std::move(scratch));
//
// A thread mostly gets back the object that it returned last, from a cache line that no other
// thread writes.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <memory>

namespace reverie {

// Thread-safe. T has a default constructor.
template <typename T>
class Spares {
 public:
  Spares() = default;
  Spares(const Spares&) = delete;
  Spares& operator=(const Spares&) = delete;
  ~Spares() {
    for (Place& place : places_) std::unique_ptr<T>(place.spare.load()).reset();
  }

  // A new one if none is left.
  std::unique_ptr<T> take() {
    const std::size_t first = first_place();
    for (std::size_t i = 0; i < kPlaces; ++i) {
      std::atomic<T*>& spare = places_[(first + i) % kPlaces].spare;
      if (spare.load(std::memory_order_relaxed) == nullptr) continue;
      if (T* const found = spare.exchange(nullptr, std::memory_order_acquire)) {
        return std::unique_ptr<T>(found);
      }
    }
    return std::make_unique<T>();
  }

  // Frees it if there are enough already.
  void give_back(std::unique_ptr<T> one) {
    const std::size_t first = first_place();
    for (std::size_t i = 0; i < kPlaces; ++i) {
      std::atomic<T*>& spare = places_[(first + i) % kPlaces].spare;
      T* expected = nullptr;
      if (spare.load(std::memory_order_relaxed) == nullptr &&
          spare.compare_exchange_strong(expected, one.get(), std::memory_order_release,
                                        std::memory_order_relaxed)) {
        (void)one.release();
        return;
      }
    }
  }

 private:
  static constexpr std::size_t kPlaces = 32;
  static constexpr std::size_t kCacheLine = 64;
  struct alignas(kCacheLine) Place {
    std::atomic<T*> spare{nullptr};
  };

  // Another one for each of the first threads.
  static std::size_t first_place() {
    static std::atomic<std::size_t> threads{0};
    thread_local const std::size_t mine = threads.fetch_add(1, std::memory_order_relaxed);
    return mine % kPlaces;
  }

  std::array<Place, kPlaces> places_;
};

}  // namespace reverie
