#include "reverie/learn/core_split.h"

#include <algorithm>
#include <cmath>
#include <vector>

namespace reverie {
namespace {

Status check_curve(const char* name, std::span<const double> curve) {
  if (curve.empty())
    return invalid_argument("the {} curve is empty; measure one core at least", name);
  for (std::size_t i = 0; i < curve.size(); ++i) {
    if (std::isfinite(curve[i]) && curve[i] > 0) continue;
    return invalid_argument("the {} curve is {} on {} cores; it must be finite and above 0", name,
                            curve[i], i + 1);
  }
  return {};
}

}  // namespace

Result<CoreSplit> split_cores(std::span<const double> actor_curve,
                              std::span<const double> learner_curve,
                              const CoreSplitOptions& options) {
  REVERIE_RETURN_IF_ERROR(check_curve("actors'", actor_curve));
  REVERIE_RETURN_IF_ERROR(check_curve("learners'", learner_curve));
  if (!(options.update_interval > 0) || !std::isfinite(options.update_interval)) {
    return invalid_argument("update_interval is {}; it must be a number above 0",
                            options.update_interval);
  }
  if (options.core_count < 1) return invalid_argument("cores is 0; it must be at least 1");
  const std::size_t shared = options.learners_need_no_core ? 0 : 1;
  std::vector<CoreSplit> splits;
  for (std::size_t a = 1; a <= actor_curve.size(); ++a) {
    for (std::size_t l = 1; l <= learner_curve.size(); ++l) {
      if (a + shared * l > options.core_count) continue;
      const double collected = actor_curve[a - 1];
      const double consumed = options.update_interval * learner_curve[l - 1];
      splits.push_back({a, l, collected / consumed, std::min(collected, consumed)});
    }
  }
  if (splits.empty()) {
    // One core: a batch takes its own time and that of its steps.
    const double step_s = 1 / actor_curve[0] + 1 / (options.update_interval * learner_curve[0]);
    return CoreSplit{0, 1, 1.0, 1 / step_s};
  }
  const auto distance = [](const CoreSplit& split) { return std::abs(split.ratio - 1); };
  double nearest = distance(splits.front());
  for (const CoreSplit& split : splits) nearest = std::min(nearest, distance(split));
  const CoreSplit* best = nullptr;
  for (const CoreSplit& split : splits) {
    if (distance(split) > nearest + options.tolerance) continue;
    // Among equally fast splits, the one with fewer threads, which comes first.
    if (best == nullptr || split.steps_per_s > best->steps_per_s) best = &split;
  }
  return *best;
}

}  // namespace reverie
