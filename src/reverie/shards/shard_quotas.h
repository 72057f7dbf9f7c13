// ShardQuotas: divides a sample request among shards, and corrects the probabilities accordingly.
//
// Shard s should give the share t_s of the samples: equal shares (kEven), or in proportion to the
// mass of its table (kMass), which is the total weight of its items, reported with each batch
// (Selector::mass). dm-reverb's servers do not report it. There an item's weight is
// priority^exponent, and an item of priority x that was drawn with probability p reveals the
// mass:
//
//     p = x^exponent / mass        =>        mass = x^exponent / p
//
// (A uniform table has p = 1 / size: its mass is its size.)
//
// Item i of shard s comes with probability q_s p_i, where q_s is the share of the samples that
// shard s gives. A slow or dead shard gives less than it should, so q_s is measured: its share of
// about the last kMemory samples. With kMass q_s p_i is the probability in one table of all items:
//
//     q_s p_i = (mass_s / mass) (x^exponent / mass_s) = x^exponent / mass
//
// The rest of the derivation is in docs/concepts/shards.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace reverie {

enum class ShardSampling { kEven, kMass };

// Not thread-safe.
class ShardQuotas {
 public:
  static constexpr double kMemory = 4096;  // samples
  // The least that a shard is asked for, so that its mass stays known; in parts of an equal share.
  static constexpr double kLeastPart = 0.02;

  // Requires shard_count >= 1.
  ShardQuotas(std::size_t shard_count, ShardSampling sampling);

  // Divides `count` among the open shards, into out[s]; the others get 0. Rounding errors even out
  // over requests. Requires spans of shard_count, and an open shard.
  void split(std::size_t count, std::span<const std::uint8_t> is_open, std::span<std::size_t> out);

  // Notes the mass that a shard reported. No effect unless it is finite and above 0.
  void note_mass(std::size_t shard, double mass);
  // Notes a draw of a shard that does not report its mass: `weight` is priority^exponent. No effect
  // unless both are above 0.
  void note_draw(std::size_t shard, double weight, double probability);
  // Notes how many samples of a batch each shard gave. Requires one count per shard.
  void note_batch(std::span<const std::size_t> counts);

  // q_s. Above 0 for a shard of the last note_batch().
  double part(std::size_t shard) const;
  // The last estimate; 0 before the first.
  double mass(std::size_t shard) const { return masses_[shard]; }

 private:
  const ShardSampling sampling_;
  std::vector<double> masses_;
  std::vector<double> credits_;  // samples owed by rounding
  std::vector<double> given_;    // share of the last kMemory samples
};

}  // namespace reverie
