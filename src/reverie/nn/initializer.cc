#include "reverie/nn/initializer.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

#include "reverie/base/normal.h"

namespace reverie::nn {
namespace {

double dot(const double* a, const double* b, std::size_t count) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

// `count` orthonormal vectors of `width` >= count numbers, one after the other: Gram-Schmidt on
// normal draws. Each projection is subtracted twice, since once loses digits if little remains.
std::vector<double> orthonormal_vectors(std::size_t count, std::size_t width, Random& random) {
  std::vector<double> vectors(count * width);
  for (std::size_t v = 0; v < count; ++v) {
    double* vector = vectors.data() + v * width;
    double norm = 0;
    while (norm < 1e-9) {  // a draw in the span of the previous ones has probability 0
      fill_normal<double>(random, {vector, width});
      for (int pass = 0; pass < 2; ++pass) {
        for (std::size_t w = 0; w < v; ++w) {
          const double* other = vectors.data() + w * width;
          const double share = dot(vector, other, width);
          for (std::size_t i = 0; i < width; ++i) vector[i] -= share * other[i];
        }
      }
      norm = std::sqrt(dot(vector, vector, width));
    }
    for (std::size_t i = 0; i < width; ++i) vector[i] /= norm;
  }
  return vectors;
}

}  // namespace

void initialize_uniform(const Mlp& mlp, Random& random, Parameters& parameters) {
  parameters.fill(0.0f);
  for (std::size_t i = 0; i < mlp.layers().size(); ++i) {
    const double bound = 1.0 / std::sqrt(static_cast<double>(mlp.layers()[i].inputs));
    for (const Matrix& matrix :
         {mlp.weight(i, parameters.span()), mlp.bias(i, parameters.span())}) {
      for (std::size_t r = 0; r < matrix.rows; ++r) {
        for (std::size_t c = 0; c < matrix.columns; ++c) {
          matrix(r, c) = static_cast<float>(bound * (2.0 * random.uniform() - 1.0));
        }
      }
    }
  }
}

Status initialize_orthogonal(const Mlp& mlp, std::span<const double> gains, Random& random,
                             Parameters& parameters) {
  if (gains.size() != mlp.layers().size()) {
    return invalid_argument("gains has {} entries; the network has {} layers, give one for each",
                            gains.size(), mlp.layers().size());
  }
  for (std::size_t i = 0; i < gains.size(); ++i) {
    if (!(gains[i] > 0.0) || !std::isfinite(gains[i])) {
      return invalid_argument("gains[{}] is {}; it must be finite and above 0", i, gains[i]);
    }
  }
  parameters.fill(0.0f);
  for (std::size_t i = 0; i < gains.size(); ++i) {
    const Matrix weight = mlp.weight(i, parameters.span());
    const std::size_t count = std::min(weight.rows, weight.columns);
    const std::size_t width = std::max(weight.rows, weight.columns);
    const std::vector<double> vectors = orthonormal_vectors(count, width, random);
    for (std::size_t r = 0; r < weight.rows; ++r) {
      for (std::size_t c = 0; c < weight.columns; ++c) {
        const double value = weight.rows == count ? vectors[r * width + c] : vectors[c * width + r];
        weight(r, c) = static_cast<float>(gains[i] * value);
      }
    }
  }
  return {};
}

}  // namespace reverie::nn
