// FlushDenormals: treats numbers below 1.2e-38 as zero for as long as it lives, in its thread.
//
// The moments of a weight whose gradient is zero shrink with every step, for instance behind a ReLU
// that never opens, and after some hundred steps are denormal. Processors that compute with such
// numbers in microcode took half as long again for a whole gradient step.
#pragma once

#include <cstdint>

#if defined(__SSE__)
#include <immintrin.h>
#endif

namespace reverie::nn {

class FlushDenormals {
 public:
  FlushDenormals() : before_(read()) {
    if ((before_ & kFlush) != kFlush) write(before_ | kFlush);
  }
  ~FlushDenormals() {
    if ((before_ & kFlush) != kFlush) write(before_);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
#if defined(__SSE__)
  using Word = std::uint32_t;
  static constexpr Word kFlush = 0x8040;  // results, and operands
  static Word read() {
    return _mm_getcsr();
  }
  static void write(Word word) {
    _mm_setcsr(word);
  }
#elif defined(__aarch64__)
  using Word = std::uint64_t;
  static constexpr Word kFlush = Word{1} << 24;
  static Word read() {
    Word word = 0;
    asm volatile("mrs %0, fpcr" : "=r"(word));
    return word;
  }
  static void write(Word word) {
    asm volatile("msr fpcr, %0" : : "r"(word));
  }
#else
  using Word = std::uint32_t;
  static constexpr Word kFlush = 0;
  static Word read() {
    return 0;
  }
  static void write(Word) {}
#endif

  const Word before_;
};

}  // namespace reverie::nn
