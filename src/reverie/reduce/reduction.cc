#include "reverie/reduce/reduction.h"

#include <bit>
#include <complex>
#include <cstring>
#include <type_traits>

#include "reverie/base/check.h"

namespace reverie {
namespace {

// Bits of an IEEE half: 1 sign, 5 exponent, 10 mantissa.
float from_half(std::uint16_t half) {
  const std::uint32_t sign = static_cast<std::uint32_t>(half & 0x8000u) << 16u;
  const std::uint32_t exponent = (half >> 10u) & 0x1fu;
  const std::uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0) {
    const float small = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -small : small;
  }
  const std::uint32_t wide = exponent == 31 ? 0xffu : exponent + 112;
  return std::bit_cast<float>(sign | (wide << 23u) | (mantissa << 13u));
}

// To the nearest, ties to even.
std::uint16_t to_half(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16u) & 0x8000u);
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00u);  // NaN
  if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // below the least normal half: a multiple of 2^-24
    const float scaled = std::bit_cast<float>(magnitude) + 0.5f;  // its last bits are the multiple
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(scaled) - 0x3f000000u));
  }
  const std::uint32_t odd = (magnitude >> 13u) & 1u;
  return static_cast<std::uint16_t>(sign | ((magnitude - 0x38000000u + 0xfffu + odd) >> 13u));
}

float from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16u);
}

std::uint16_t to_bfloat(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16u) | 0x40u);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16u) & 1u)) >> 16u);
}

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

template <typename T>
void store(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

template <typename T, typename Op>
void apply(std::byte* into, const std::byte* from, std::size_t count, Op op) {
  for (std::size_t i = 0; i < count; ++i) {
    std::byte* const at = into + i * sizeof(T);
    store<T>(at, op(load<T>(at), load<T>(from + i * sizeof(T))));
  }
}

template <typename T>
T plus(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  } else {
    return a + b;
  }
}

template <typename T>
T times(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  } else {
    return a * b;
  }
}

template <typename T>
bool is_nan(T value) {
  if constexpr (std::is_floating_point_v<T>) return value != value;
  return false;
}

template <typename T>
void combine_as(ReduceOp op, std::byte* into, const std::byte* from, std::size_t count) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMean:
      return apply<T>(into, from, count, plus<T>);
    case ReduceOp::kProduct:
      return apply<T>(into, from, count, times<T>);
    case ReduceOp::kMin:
    case ReduceOp::kMax:
      break;
  }
  if constexpr (std::is_arithmetic_v<T>) {
    if (op == ReduceOp::kMin) {
      return apply<T>(into, from, count, [](T a, T b) { return b < a || is_nan(b) ? b : a; });
    }
    return apply<T>(into, from, count, [](T a, T b) { return a < b || is_nan(b) ? b : a; });
  }
}

bool is_integer(DType dtype) {
  return dtype >= DType::kInt8 && dtype <= DType::kUInt64;
}

bool is_half(DType dtype) {
  return dtype == DType::kFloat16 || dtype == DType::kBFloat16;
}

// value * factor; of a complex number both parts.
template <typename T>
T scaled(T value, std::uint64_t factor) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::uint64_t>(value) * factor);
  } else if constexpr (std::is_floating_point_v<T>) {
    return value * static_cast<T>(factor);
  } else {
    const auto real = static_cast<typename T::value_type>(factor);
    return {value.real() * real, value.imag() * real};
  }
}

// Calls `visit` with a value of the combining dtype's type.
template <typename Visit>
void visit_type(DType dtype, Visit visit) {
  switch (dtype) {
    case DType::kBool:  // 0 and 1: the product is "and"
    case DType::kUInt8:
      return visit(std::uint8_t{});
    case DType::kInt8:
      return visit(std::int8_t{});
    case DType::kInt16:
      return visit(std::int16_t{});
    case DType::kInt32:
      return visit(std::int32_t{});
    case DType::kInt64:
      return visit(std::int64_t{});
    case DType::kUInt16:
      return visit(std::uint16_t{});
    case DType::kUInt32:
      return visit(std::uint32_t{});
    case DType::kUInt64:
      return visit(std::uint64_t{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat64:
      return visit(double{});
    case DType::kComplex64:
      return visit(std::complex<float>{});
    case DType::kComplex128:
      return visit(std::complex<double>{});
    default:
      REVERIE_CHECK(false);
  }
}

}  // namespace

std::string_view reduce_op_name(ReduceOp op) {
  constexpr std::string_view kNames[] = {"sum", "mean", "min", "max", "product"};
  return kNames[static_cast<std::size_t>(op)];
}

std::optional<ReduceOp> reduce_op_from_name(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(ReduceOp::kProduct); ++i) {
    const auto op = static_cast<ReduceOp>(i);
    if (reduce_op_name(op) == name) return op;
  }
  return std::nullopt;
}

Status check_reducible(ReduceOp op, DType dtype) {
  const bool is_sum = op == ReduceOp::kSum || op == ReduceOp::kMean;
  const bool is_order = op == ReduceOp::kMin || op == ReduceOp::kMax;
  const bool is_complex = dtype == DType::kComplex64 || dtype == DType::kComplex128;
  const bool is_known = is_integer(dtype) || is_half(dtype) || is_complex ||
                        dtype == DType::kFloat32 || dtype == DType::kFloat64 ||
                        dtype == DType::kBool;
  if (!is_known || (dtype == DType::kBool && is_sum) || (is_complex && is_order) ||
      (op == ReduceOp::kMean && is_integer(dtype))) {
    return invalid_argument("op is '{}', which {} arrays do not have; convert them before",
                            reduce_op_name(op), dtype_name(dtype));
  }
  return {};
}

DType combining_dtype(DType dtype) {
  return is_half(dtype) ? DType::kFloat32 : dtype;
}

void widen(DType dtype, const std::byte* from, std::byte* to, std::size_t count) {
  if (!is_half(dtype)) {
    if (count > 0) std::memcpy(to, from, count * dtype_size_bytes(dtype));
    return;
  }
  const auto convert = dtype == DType::kFloat16 ? from_half : from_bfloat;
  for (std::size_t i = 0; i < count; ++i) {
    store(to + 4 * i, convert(load<std::uint16_t>(from + 2 * i)));
  }
}

void narrow(DType dtype, const std::byte* from, std::byte* to, std::size_t count) {
  if (!is_half(dtype)) {
    if (count > 0) std::memcpy(to, from, count * dtype_size_bytes(dtype));
    return;
  }
  const auto convert = dtype == DType::kFloat16 ? to_half : to_bfloat;
  for (std::size_t i = 0; i < count; ++i) {
    store(to + 2 * i, convert(load<float>(from + 4 * i)));
  }
}

void combine(ReduceOp op, DType dtype, std::byte* into, const std::byte* from, std::size_t count) {
  visit_type(dtype, [&]<typename T>(T) { combine_as<T>(op, into, from, count); });
}

void scale(DType dtype, std::byte* to, const std::byte* from, std::size_t count,
           std::uint64_t factor) {
  visit_type(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < count; ++i) {
      store<T>(to + i * sizeof(T), scaled(load<T>(from + i * sizeof(T)), factor));
    }
  });
}

void add_scaled(DType dtype, std::byte* into, const std::byte* from, std::size_t count,
                std::uint64_t factor) {
  if (is_half(dtype)) {
    const auto convert = dtype == DType::kFloat16 ? from_half : from_bfloat;
    for (std::size_t i = 0; i < count; ++i) {
      const float added = scaled(convert(load<std::uint16_t>(from + 2 * i)), factor);
      store(into + 4 * i, load<float>(into + 4 * i) + added);
    }
    return;
  }
  visit_type(dtype, [&]<typename T>(T) {
    apply<T>(into, from, count, [factor](T a, T b) { return plus<T>(a, scaled(b, factor)); });
  });
}

void finish_mean(DType dtype, std::byte* values, std::size_t count, double divisor) {
  const auto divide = [&]<typename T>(T by) {
    for (std::size_t i = 0; i < count; ++i) {
      std::byte* const at = values + i * sizeof(T);
      store<T>(at, load<T>(at) / by);
    }
  };
  // A complex number is two real ones.
  switch (dtype) {
    case DType::kComplex64:
      count *= 2;
      [[fallthrough]];
    case DType::kFloat32:
      return divide(static_cast<float>(divisor));
    case DType::kComplex128:
      count *= 2;
      [[fallthrough]];
    case DType::kFloat64:
      return divide(divisor);
    default:
      REVERIE_CHECK(false);
  }
}

}  // namespace reverie
