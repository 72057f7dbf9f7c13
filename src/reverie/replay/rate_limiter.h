// RateLimiter: keeps inserts and samples of a table in a given ratio.
//
//     I inserts, S samples, D deletes so far; I - D items in the table
//
//     sample allowed:  I - D >= min_size_to_sample   and   I * spi - S - n >= min_diff
//     insert allowed:  I + n - D <= min_size_to_sample   or   (I + n) * spi - S <= max_diff
//
// with spi = samples_per_insert and n the requested number. Up to min_size_to_sample inserts are
// always allowed. A delete changes only the size, never I * spi - S, with one exception: if each
// item is to be sampled exactly spi times (a queue, a stack), the W samples that a deleted item can
// no longer give are waived: S + W replaces S. Otherwise a queue would lose a place with each
// delete.
//
// Source: Cassirer et al. 2021, "Reverb", section 3.4.
#pragma once

#include <cstdint>
#include <string>

#include "reverie/base/status.h"
#include "reverie/record/table_info.h"

namespace reverie {

// A plain state machine; the table that owns it locks.
class RateLimiter {
 public:
  // INVALID_ARGUMENT for numbers that are out of range, and for a limiter that would deadlock: it
  // could reach a state in which it allows neither an insert nor a sample.
  static Result<RateLimiter> make(const RateLimiterSpec& spec);

  // The named limiters. They only fill in the four numbers; make() checks them.
  static RateLimiterSpec min_size(std::int64_t min_size_to_sample);
  static RateLimiterSpec queue(std::int64_t size);

  const RateLimiterSpec& spec() const { return spec_; }
  std::int64_t inserts() const { return inserts_; }
  std::int64_t samples() const { return samples_; }
  std::int64_t deletes() const { return deletes_; }

  // Require n >= 1.
  bool can_insert(std::int64_t n) const;
  bool can_sample(std::int64_t n) const { return n <= sample_allowance(); }
  // The greatest n for which can_sample(n); 0 if none.
  std::int64_t sample_allowance() const;

  void did_insert(std::int64_t n = 1) { inserts_ += n; }
  void did_sample(std::int64_t n) { samples_ += n; }
  // `waived`: samples that the item had still to give, if they are waived; else 0.
  void did_delete(std::int64_t waived) {
    ++deletes_;
    waived_ += waived;
  }
  void did_delete_many(std::int64_t n) { deletes_ += n; }
  // Undo a sample, and the deletion of an item whose last sample it was.
  void take_back_sample() { --samples_; }
  void take_back_delete() { --deletes_; }
  void reset();

  // All counts, for checkpoints.
  struct Counts {
    std::int64_t inserts = 0;
    std::int64_t samples = 0;
    std::int64_t deletes = 0;
    std::int64_t waived = 0;
  };
  Counts counts() const { return {inserts_, samples_, deletes_, waived_}; }
  void set_counts(const Counts& counts) {
    inserts_ = counts.inserts;
    samples_ = counts.samples;
    deletes_ = counts.deletes;
    waived_ = counts.waived;
  }

  // Which bound holds back one insert, or one sample: its value, the bound, and by how much. Empty
  // if none does.
  std::string why_no_insert() const;
  std::string why_no_sample() const;

 private:
  explicit RateLimiter(const RateLimiterSpec& spec) : spec_(spec) {}
  // I * spi - S after n more inserts.
  double diff(std::int64_t more_inserts) const {
    return static_cast<double>(inserts_ + more_inserts) * spec_.samples_per_insert -
           static_cast<double>(samples_ + waived_);
  }
  Status check_that_it_moves() const;

  RateLimiterSpec spec_;
  std::int64_t inserts_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t deletes_ = 0;
  std::int64_t waived_ = 0;
};

}  // namespace reverie
