// Tested in tests/conformance/env_suite.h and tests/python/native_gymnasium_test.py.
#include "reverie/env/native/python_math.h"

#include <cmath>

namespace reverie {
namespace {

// The compiler must not know these values: it would replace a power with exponent 2 by a product.
volatile double two = 2;
volatile float two_float = 2;

}  // namespace

double python_square(double x) {
  return std::pow(x, static_cast<double>(two));
}

float python_square(float x) {
  return std::pow(x, static_cast<float>(two_float));
}

double python_modulo(double x, double y) {
  const double rest = std::fmod(x, y);
  return rest < 0 ? rest + y : rest;
}

}  // namespace reverie
