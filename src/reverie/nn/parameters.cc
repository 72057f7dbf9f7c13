// Tested in mlp_test.cc and adam_test.cc.
#include "reverie/nn/parameters.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "reverie/nn/flush_denormals.h"
#include "reverie/nn/kernels.h"

namespace reverie::nn {
namespace {
constexpr std::align_val_t kCacheLine{64};
}  // namespace

Parameters::Parameters(std::size_t float_count)
    : floats_(static_cast<float*>(::operator new(float_count * sizeof(float), kCacheLine))),
      float_count_(float_count) {
  fill(0.0f);
}

void Parameters::Free::operator()(float* floats) const {
  ::operator delete(floats, kCacheLine);
}

Parameters Parameters::copy() const {
  Parameters result(float_count_);
  result.assign(*this);
  return result;
}

void Parameters::assign(const Parameters& other) {
  REVERIE_CHECK(other.float_count_ == float_count_);
  if (float_count_ > 0) std::memcpy(data(), other.data(), float_count_ * sizeof(float));
}

void Parameters::fill(float value) {
  std::fill_n(data(), float_count_, value);
}

void polyak_average(const Parameters& source, float rate, Parameters& target, Part part) {
  REVERIE_CHECK(source.float_count() == target.float_count());
  REVERIE_CHECK(rate >= 0.0f && rate <= 1.0f);
  const FlushDenormals flush;
  const auto [begin, end] = part.of(source.float_count());
  kernels().approach(target.data() + begin, source.data() + begin, end - begin, rate);
}

}  // namespace reverie::nn
