// ShardQuotas: how a sample request is divided among shards, and what that makes of probabilities.
//
// Shard s is meant to give the part t_s of the samples: each the same (kEven), or in proportion to
// the mass of its table (kMass): what all its items weigh in a draw, as its sampler tells with each
// batch (Selector::mass). A server of dm-reverb's tells none. There the items weigh
// priority^exponent, and an item of priority x that was drawn with probability p gives the mass
// away:
//
//     p = x^exponent / mass        =>        mass = x^exponent / p
//
// (A uniform table has p = 1 / size: its mass is its size.)
//
// Item i of shard s comes with probability q_s p_i, where q_s is the part of the samples that shard
// s gives. A slow or dead shard gives less than it is meant to, so q_s is measured: its part of the
// last kMemory samples or so. With kMass q_s p_i is what one table over all items would have:
//
//     q_s p_i = (mass_s / mass) (x^exponent / mass_s) = x^exponent / mass
//
// docs/concepts/shards.md has the rest of the derivation.
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
  // What a shard is asked for at least, so that its mass stays known: of an even part.
  static constexpr double kLeastPart = 0.02;

  // Requires shard_count >= 1.
  ShardQuotas(std::size_t shard_count, ShardSampling sampling);

  // Divides `count` among the shards that are open, in out[s]; the others get 0. Rounding evens out
  // over the requests. Requires one of each a shard, and that one is open.
  void split(std::size_t count, std::span<const std::uint8_t> is_open, std::span<std::size_t> out);

  // The mass that a shard told. No effect unless it is finite and above 0.
  void note_mass(std::size_t shard, double mass);
  // A draw of a shard that tells none: `weight` is priority^exponent. No effect unless both are
  // above 0.
  void note_draw(std::size_t shard, double weight, double probability);
  // What a batch was made of. Requires one count a shard.
  void note_batch(std::span<const std::size_t> counts);

  // q_s. Above 0 for a shard of the last note_batch().
  double part(std::size_t shard) const;
  // The last estimate; 0 before the first.
  double mass(std::size_t shard) const { return masses_[shard]; }

 private:
  const ShardSampling sampling_;
  std::vector<double> masses_;
  std::vector<double> credits_;  // samples that rounding owes
  std::vector<double> given_;    // of the last kMemory samples
};

}  // namespace reverie
