#include "reverie/replay/rate_limiter.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace reverie {
namespace {

// A larger allowance counts as unlimited.
constexpr double kUnlimited = 9.0e18;

}  // namespace

RateLimiterSpec RateLimiter::min_size(std::int64_t min_size_to_sample) {
  constexpr double kMax = std::numeric_limits<double>::max();
  return {1.0, min_size_to_sample, -kMax, kMax};
}

RateLimiterSpec RateLimiter::queue(std::int64_t size) {
  return {1.0, 1, 0.0, static_cast<double>(size)};
}

Result<RateLimiter> RateLimiter::make(const RateLimiterSpec& spec) {
  if (!(spec.samples_per_insert > 0) || !std::isfinite(spec.samples_per_insert)) {
    return invalid_argument("samples_per_insert is {}; it must be finite and > 0",
                            spec.samples_per_insert);
  }
  if (spec.min_size_to_sample < 1) {
    return invalid_argument("min_size_to_sample is {}; it must be at least 1",
                            spec.min_size_to_sample);
  }
  if (std::isnan(spec.min_diff) || std::isnan(spec.max_diff) || spec.min_diff > spec.max_diff) {
    return invalid_argument("min_diff is {} and max_diff is {}; min_diff must not exceed max_diff",
                            spec.min_diff, spec.max_diff);
  }
  RateLimiter limiter(spec);
  REVERIE_RETURN_IF_ERROR(limiter.check_that_it_moves());
  return limiter;
}

// For a given number of inserts, samples can be blocked only in the state in which all permitted
// samples are taken. So check that each such state permits an insert.
Status RateLimiter::check_that_it_moves() const {
  constexpr int kStates = 4096;  // more than the period of any usual ratio
  RateLimiter walk(spec_);
  walk.inserts_ = spec_.min_size_to_sample;
  for (int state = 0; state < kStates; ++state) {
    const std::int64_t allowed = walk.sample_allowance();
    if (static_cast<double>(allowed) >= kUnlimited) return {};
    walk.did_sample(allowed);
    if (!walk.can_insert(1)) {
      return invalid_argument(
          "the rate limiter can never be met: after {} inserts and {} samples the difference {} "
          "allows neither an insert (max_diff {}) nor a sample (min_diff {}); widen the range "
          "between min_diff and max_diff to at least {}",
          walk.inserts_, walk.samples_, walk.diff(0), spec_.max_diff, spec_.min_diff,
          1 + spec_.samples_per_insert);
    }
    walk.did_insert();
  }
  return {};
}

bool RateLimiter::can_insert(std::int64_t n) const {
  n = std::min(n, std::numeric_limits<std::int64_t>::max() - inserts_);
  return inserts_ + n - deletes_ <= spec_.min_size_to_sample || diff(n) <= spec_.max_diff;
}

std::int64_t RateLimiter::sample_allowance() const {
  if (inserts_ - deletes_ < spec_.min_size_to_sample) return 0;
  const double room = diff(0) - spec_.min_diff;
  if (room >= kUnlimited) return std::numeric_limits<std::int64_t>::max();
  return room < 1 ? 0 : static_cast<std::int64_t>(std::floor(room));
}

void RateLimiter::reset() {
  inserts_ = samples_ = deletes_ = waived_ = 0;
}

std::string RateLimiter::why_no_insert() const {
  if (can_insert(1)) return "";
  return format(
      "after one more insert, inserts * samples_per_insert - samples would be {:g} ({} * {:g} - "
      "{}), "
      "over max_diff {:g} by {:g}; {:.0f} more sample(s) are needed first",
      diff(1), inserts_ + 1, spec_.samples_per_insert, samples_ + waived_, spec_.max_diff,
      diff(1) - spec_.max_diff, std::ceil(diff(1) - spec_.max_diff));
}

std::string RateLimiter::why_no_sample() const {
  const std::int64_t size = inserts_ - deletes_;
  if (size < spec_.min_size_to_sample) {
    return format("the table holds {} item(s), below min_size_to_sample {} by {}; insert {} more",
                  size, spec_.min_size_to_sample, spec_.min_size_to_sample - size,
                  spec_.min_size_to_sample - size);
  }
  const double lacking = spec_.min_diff - (diff(0) - 1);
  if (!(lacking > 0)) return "";
  return format(
      "after one more sample, inserts * samples_per_insert - samples would be {:g} ({} * {:g} - "
      "{}), "
      "under min_diff {:g} by {:g}; {:.0f} more insert(s) are needed first",
      diff(0) - 1, inserts_, spec_.samples_per_insert, samples_ + waived_ + 1, spec_.min_diff,
      lacking, std::ceil(lacking / spec_.samples_per_insert));
}

}  // namespace reverie
