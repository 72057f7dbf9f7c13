#include "reverie/shards/shard_quotas.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "reverie/base/check.h"

namespace reverie {

ShardQuotas::ShardQuotas(std::size_t shard_count, ShardSampling sampling)
    : sampling_(sampling), masses_(shard_count), credits_(shard_count), given_(shard_count) {}

void ShardQuotas::split(std::size_t count, std::span<const std::uint8_t> is_open,
                        std::span<std::size_t> out) {
  const std::size_t shards = masses_.size();
  std::fill(out.begin(), out.end(), 0);
  double known = 0;
  double sum = 0;
  double open = 0;
  for (std::size_t s = 0; s < shards; ++s) {
    if (!is_open[s]) continue;
    ++open;
    sum += masses_[s];
    known += masses_[s] > 0;
  }
  REVERIE_CHECK(open > 0);
  std::vector<double> parts(shards);
  for (std::size_t s = 0; s < shards; ++s) {
    if (!is_open[s]) continue;
    parts[s] = 1 / open;
    if (sampling_ == ShardSampling::kEven || known == 0) continue;
    // A shard whose mass is not known yet counts as the mean of the others.
    const double mass = masses_[s] > 0 ? masses_[s] : sum / known;
    const double all = sum + (open - known) * sum / known;
    parts[s] = std::max(mass / all, kLeastPart / open);
  }
  const double whole = std::accumulate(parts.begin(), parts.end(), 0.0);
  std::size_t given = 0;
  for (std::size_t s = 0; s < shards; ++s) {
    if (!is_open[s]) continue;
    credits_[s] += static_cast<double>(count) * parts[s] / whole;
    out[s] =
        std::min(count - given, static_cast<std::size_t>(std::max(0.0, std::floor(credits_[s]))));
    given += out[s];
    credits_[s] -= static_cast<double>(out[s]);
  }
  // Samples left by rounding go to the shard with the largest credit.
  for (; given < count; ++given) {
    std::size_t best = shards;
    for (std::size_t s = 0; s < shards; ++s) {
      if (is_open[s] && (best == shards || credits_[s] > credits_[best])) best = s;
    }
    ++out[best];
    credits_[best] -= 1;
  }
  // A shard that returns must not be flooded because of its earlier credit.
  for (double& credit : credits_) credit = std::clamp(credit, -1.0, 1.0);
}

void ShardQuotas::note_draw(std::size_t shard, double weight, double probability) {
  if (weight > 0 && probability > 0) note_mass(shard, weight / probability);
}

void ShardQuotas::note_mass(std::size_t shard, double mass) {
  if (mass > 0 && std::isfinite(mass)) masses_[shard] = mass;
}

void ShardQuotas::note_batch(std::span<const std::size_t> counts) {
  const auto all =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::size_t{0}));
  const double kept = std::exp(-all / kMemory);
  for (std::size_t s = 0; s < given_.size(); ++s) {
    given_[s] = given_[s] * kept + static_cast<double>(counts[s]);
  }
}

double ShardQuotas::part(std::size_t shard) const {
  const double all = std::accumulate(given_.begin(), given_.end(), 0.0);
  return all > 0 ? given_[shard] / all : 0;
}

}  // namespace reverie
