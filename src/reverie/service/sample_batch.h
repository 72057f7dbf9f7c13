// SampleBatch: the answer to a sample request, as a struct of arrays.
//
//     keys[B] tickets[B] probabilities[B] priorities[B] ... trajectories[B]    kept by clear()
//     pins                                                     one per breath, for all its chunks
//
// The trajectories do not own their chunks: the pins do, for the whole batch. A table's pin delays
// the freeing of everything removed after it, so copy the rows and release it; a caller that must
// hold longer (a slow socket) calls retain().
//
// A brief batch has tickets, probabilities, trajectories and one table_size(); the other arrays are
// empty. A learner needs no more, and the table's lock is held for less time.
//
// A batch from several stores tells which store each item is in: shards().
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/record/item.h"

namespace reverie {

// Takes pins back. Thread-safe.
class PinOwner {
 public:
  virtual void unpin(std::uint64_t token) noexcept = 0;

 protected:
  ~PinOwner() = default;
};

class Pin {
 public:
  Pin() = default;
  Pin(std::shared_ptr<PinOwner> owner, std::uint64_t token)
      : owner_(std::move(owner)), token_(token) {}
  Pin(Pin&&) = default;
  Pin& operator=(Pin&& other) noexcept {
    reset();
    owner_ = std::move(other.owner_);
    token_ = other.token_;
    return *this;
  }
  ~Pin() { reset(); }

  explicit operator bool() const { return owner_ != nullptr; }
  void reset() {
    if (owner_) std::exchange(owner_, nullptr)->unpin(token_);
  }

 private:
  std::shared_ptr<PinOwner> owner_;
  std::uint64_t token_ = 0;
};

// One drawn item, as the table fills it in.
struct SampledItem {
  ItemKey key = 0;
  Ticket ticket;
  double probability = 0;
  double priority = 0;
  std::int64_t inserted_at_ns = 0;  // on the store's clock
  std::int64_t table_size = 0;      // before any removal that this draw caused
  std::int64_t version = 0;
  std::int32_t times_sampled = 0;  // this draw included
  bool is_redelivered = false;     // see SampleBatch::is_redelivered()
  TrajectoryView trajectory;
};

// Where to write drawn items, one array per attribute: item i at [i]. Arrays that a brief batch
// lacks are null.
struct SampleRows {
  ItemKey* keys;
  std::uint64_t* tickets;
  double* probabilities;
  double* priorities;
  std::int64_t* inserted_at_ns;
  std::int64_t* table_sizes;
  std::int64_t* versions;
  std::int32_t* times_sampled;
  TrajectoryView* trajectories;

  bool is_brief() const { return keys == nullptr; }
  void set_brief(std::size_t i, Ticket ticket, double probability,
                 const TrajectoryView& trajectory) const {
    tickets[i] = ticket.packed();
    probabilities[i] = probability;
    trajectories[i] = trajectory;
  }
  // Requires a batch that is not brief.
  void set(std::size_t i, const SampledItem& item) const {
    keys[i] = item.key;
    tickets[i] = item.ticket.packed();
    probabilities[i] = item.probability;
    priorities[i] = item.priority;
    inserted_at_ns[i] = item.inserted_at_ns;
    table_sizes[i] = item.table_size;
    versions[i] = item.version;
    times_sampled[i] = item.times_sampled;
    trajectories[i] = item.trajectory;
  }
};

// Move-only. clear() keeps the memory for reuse.
class SampleBatch {
 public:
  SampleBatch() = default;

  std::size_t size() const { return tickets_.size(); }
  bool empty() const { return tickets_.empty(); }

  std::span<const ItemKey> keys() const { return keys_; }
  std::span<const std::uint64_t> tickets() const { return tickets_; }
  std::span<const double> probabilities() const { return probabilities_; }
  std::span<const double> priorities() const { return priorities_; }
  std::span<const std::int64_t> inserted_at_ns() const { return inserted_at_ns_; }
  std::span<const std::int64_t> table_sizes() const { return table_sizes_; }
  std::span<const std::int64_t> versions() const { return versions_; }
  std::span<const std::int32_t> times_sampled() const { return times_sampled_; }
  std::span<const TrajectoryView> trajectories() const { return trajectories_; }
  // Whether an earlier draw of the item was undone because its reader went away.
  bool is_redelivered(std::size_t i) const { return !redelivered_.empty() && redelivered_[i] != 0; }
  // The same for all items, 1 or 0 each; empty if it is so of none.
  std::span<const std::uint8_t> redelivered() const { return redelivered_; }
  // The index of each item's store; empty if there is only one.
  std::span<const std::uint16_t> shards() const { return shards_; }
  // Items in the table at the last draw; also in a brief batch.
  std::int64_t table_size() const { return table_size_; }
  bool is_brief() const { return is_brief_; }
  // The store's clock when the last item was drawn: the age of an item is this less inserted_at_ns.
  std::int64_t drawn_at_ns() const { return drawn_at_ns_; }
  // Whether the request had to wait for the limiter.
  bool rate_limited() const { return rate_limited_; }
  // The probability of the table's least likely item at the last draw, on the scale of
  // probabilities(); 0 if it was not requested or is not known.
  double least_probability() const { return least_probability_; }
  // The total weight of the table's items after the last draw, on the scale of the table's sampler
  // (Selector::mass); 0 if the service does not report it, or the table is empty.
  double sampler_mass() const { return sampler_mass_; }

  // --- For code that fills it. A batch is either brief as a whole or not at all.
  void reserve(std::size_t count, bool is_brief = false);
  void add(const SampledItem& item) {
    extend(1).set(0, item);
    if (item.is_redelivered) set_redelivered(size() - 1);
    table_size_ = item.table_size;
  }
  // Adds `count` items, all of which the caller sets. Valid until the next call.
  SampleRows extend(std::size_t count);
  // The existing items, to be changed. Valid until the next call.
  SampleRows rows();
  // Appends `count` items of `other`, which are from `shard`, from `begin` on. If these are all of
  // its items, it takes their pins; a part is retained first, and stays valid in `other`. Requires
  // that neither is brief, and that all items of this one came by take(). Ages do not change.
  void take(SampleBatch& other, std::size_t begin, std::size_t count, std::uint16_t shard);
  // Removes the items at `indices`, which must ascend; the others keep their order.
  void remove(std::span<const std::size_t> indices);
  // Appends all items of `other`, drawn later from the same service, with their pins. Ages of items
  // that tell their stores do not change. Requires that neither is brief.
  void append(SampleBatch& other);
  // Takes the items from `begin` on out of this batch. Both share their chunks afterwards. Requires
  // that it is not brief.
  SampleBatch split_off(std::size_t begin);
  void set_redelivered(std::size_t i) {
    redelivered_.resize(size());
    redelivered_[i] = 1;
  }
  // For draws that are about to be undone since their reader went away.
  void set_all_redelivered() { redelivered_.assign(size(), 1); }
  void set_table_size(std::int64_t size) { table_size_ = size; }
  void set_drawn_at(TimePoint now) { drawn_at_ns_ = now.ns; }
  void set_rate_limited() { rate_limited_ = true; }
  void set_sampler_mass(double mass) { sampler_mass_ = mass; }
  void set_least_probability(double least) { least_probability_ = least; }
  // A batch drawn in several breaths has one pin for each.
  void add_pin(Pin pin) { pins_.push_back(std::move(pin)); }
  bool has_pin() const { return !pins_.empty(); }

  // Takes a share in each chunk and releases the pins.
  void retain();
  // Releases pins and shares: the trajectories are invalid from now on.
  void unpin() {
    pins_.clear();
    retained_.clear();
  }
  // Releases everything, keeps the memory.
  void clear();

 private:
  std::vector<ItemKey> keys_;
  std::vector<std::uint64_t> tickets_;
  std::vector<double> probabilities_;
  std::vector<double> priorities_;
  std::vector<std::int64_t> inserted_at_ns_;
  std::vector<std::int64_t> table_sizes_;
  std::vector<std::int64_t> versions_;
  std::vector<std::int32_t> times_sampled_;
  std::vector<std::uint8_t> redelivered_;  // empty: all are 0
  std::vector<TrajectoryView> trajectories_;
  std::vector<std::uint16_t> shards_;
  std::vector<Pin> pins_;
  std::vector<Trajectory> retained_;
  std::int64_t drawn_at_ns_ = 0;
  std::int64_t table_size_ = 0;
  double least_probability_ = 0;
  double sampler_mass_ = 0;
  bool rate_limited_ = false;
  bool is_brief_ = false;
};

}  // namespace reverie
