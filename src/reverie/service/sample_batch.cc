// Tested in tests/conformance/replay_service_suite.h and tests/integration/sharded_store_test.cc.
#include "reverie/service/sample_batch.h"

#include <algorithm>
#include <iterator>

#include "reverie/base/check.h"

namespace reverie {

void SampleBatch::reserve(std::size_t count, bool is_brief) {
  is_brief_ = is_brief;
  tickets_.reserve(count);
  probabilities_.reserve(count);
  trajectories_.reserve(count);
  if (is_brief) return;
  keys_.reserve(count);
  priorities_.reserve(count);
  inserted_at_ns_.reserve(count);
  table_sizes_.reserve(count);
  versions_.reserve(count);
  times_sampled_.reserve(count);
}

SampleRows SampleBatch::extend(std::size_t count) {
  const std::size_t begin = size();
  if (!redelivered_.empty()) redelivered_.resize(begin + count);
  const auto grow = [begin, count](auto& values) {
    values.resize(begin + count);
    return values.data() + begin;
  };
  if (is_brief_) {
    SampleRows rows{};
    rows.tickets = grow(tickets_);
    rows.probabilities = grow(probabilities_);
    rows.trajectories = grow(trajectories_);
    return rows;
  }
  return {grow(keys_),       grow(tickets_),        grow(probabilities_),
          grow(priorities_), grow(inserted_at_ns_), grow(table_sizes_),
          grow(versions_),   grow(times_sampled_),  grow(trajectories_)};
}

SampleRows SampleBatch::rows() {
  return {keys_.data(),       tickets_.data(),        probabilities_.data(),
          priorities_.data(), inserted_at_ns_.data(), table_sizes_.data(),
          versions_.data(),   times_sampled_.data(),  trajectories_.data()};
}

void SampleBatch::take(SampleBatch& other, std::size_t begin, std::size_t count,
                       std::uint16_t shard) {
  REVERIE_CHECK(!is_brief_ && !other.is_brief_ && begin + count <= other.size());
  REVERIE_CHECK(shards_.size() == size());
  if (count == 0) return;
  const bool is_whole = begin == 0 && count == other.size();
  if (!is_whole) other.retain();
  const auto append = [begin, count](auto& to, const auto& from) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(begin);
    to.insert(to.end(), first, first + static_cast<std::ptrdiff_t>(count));
  };
  // Each store has a clock of its own: only the difference to its last draw means something.
  if (drawn_at_ns_ == 0) drawn_at_ns_ = other.drawn_at_ns_;
  const std::int64_t shift = drawn_at_ns_ - other.drawn_at_ns_;
  append(keys_, other.keys_);
  append(tickets_, other.tickets_);
  append(probabilities_, other.probabilities_);
  append(priorities_, other.priorities_);
  append(inserted_at_ns_, other.inserted_at_ns_);
  std::for_each(inserted_at_ns_.end() - static_cast<std::ptrdiff_t>(count), inserted_at_ns_.end(),
                [shift](std::int64_t& at) { at += shift; });
  append(table_sizes_, other.table_sizes_);
  append(versions_, other.versions_);
  append(times_sampled_, other.times_sampled_);
  append(trajectories_, other.trajectories_);
  if (!redelivered_.empty() || !other.redelivered_.empty()) {
    redelivered_.resize(size() - count);
    other.redelivered_.resize(other.size());
    append(redelivered_, other.redelivered_);
  }
  shards_.insert(shards_.end(), count, shard);
  table_size_ = other.table_size_;
  rate_limited_ |= other.rate_limited_;
  if (is_whole) {
    std::ranges::move(other.pins_, std::back_inserter(pins_));
    std::ranges::move(other.retained_, std::back_inserter(retained_));
    other.clear();
    return;
  }
  for (std::size_t i = size() - count; i < size(); ++i) {
    retained_.emplace_back(Ref<const Layout>::share(trajectories_[i].layout),
                           trajectories_[i].pieces());
    trajectories_[i] = retained_.back().view();
  }
}

void SampleBatch::remove(std::span<const std::size_t> indices) {
  const auto take_out = [indices](auto& values) {
    if (values.empty()) return;
    std::size_t to = 0;
    std::size_t next = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (next < indices.size() && indices[next] == i) {
        ++next;
      } else {
        values[to++] = values[i];
      }
    }
    values.resize(to);
  };
  REVERIE_CHECK(indices.empty() || indices.back() < size());
  take_out(keys_);
  take_out(tickets_);
  take_out(probabilities_);
  take_out(priorities_);
  take_out(inserted_at_ns_);
  take_out(table_sizes_);
  take_out(versions_);
  take_out(times_sampled_);
  take_out(redelivered_);
  take_out(trajectories_);
  take_out(shards_);
}

void SampleBatch::append(SampleBatch& other) {
  REVERIE_CHECK(!is_brief_ && !other.is_brief_);
  if (!redelivered_.empty() || !other.redelivered_.empty()) {
    redelivered_.resize(size());
    other.redelivered_.resize(other.size());
  }
  // With several stores each batch is on the clock of its first item's.
  if (!shards_.empty()) {
    const std::int64_t shift = other.drawn_at_ns_ - drawn_at_ns_;
    for (std::int64_t& at : inserted_at_ns_) at += shift;
  }
  const auto join = [](auto& to, auto& from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
  };
  join(keys_, other.keys_);
  join(tickets_, other.tickets_);
  join(probabilities_, other.probabilities_);
  join(priorities_, other.priorities_);
  join(inserted_at_ns_, other.inserted_at_ns_);
  join(table_sizes_, other.table_sizes_);
  join(versions_, other.versions_);
  join(times_sampled_, other.times_sampled_);
  join(redelivered_, other.redelivered_);
  join(trajectories_, other.trajectories_);
  join(shards_, other.shards_);
  join(pins_, other.pins_);
  join(retained_, other.retained_);
  drawn_at_ns_ = other.drawn_at_ns_;
  table_size_ = other.table_size_;
  least_probability_ = other.least_probability_;
  sampler_mass_ = other.sampler_mass_;
  rate_limited_ |= other.rate_limited_;
  other.clear();
}

SampleBatch SampleBatch::split_off(std::size_t begin) {
  REVERIE_CHECK(!is_brief_ && begin <= size());
  retain();
  SampleBatch rest;
  const auto move_rest = [begin](auto& to, auto& from) {
    if (from.empty()) return;
    to.assign(from.begin() + static_cast<std::ptrdiff_t>(begin), from.end());
    from.resize(begin);
  };
  if (!redelivered_.empty()) redelivered_.resize(size());
  move_rest(rest.keys_, keys_);
  move_rest(rest.tickets_, tickets_);
  move_rest(rest.probabilities_, probabilities_);
  move_rest(rest.priorities_, priorities_);
  move_rest(rest.inserted_at_ns_, inserted_at_ns_);
  move_rest(rest.table_sizes_, table_sizes_);
  move_rest(rest.versions_, versions_);
  move_rest(rest.times_sampled_, times_sampled_);
  move_rest(rest.redelivered_, redelivered_);
  move_rest(rest.trajectories_, trajectories_);
  move_rest(rest.shards_, shards_);
  rest.retained_.reserve(rest.size());
  for (TrajectoryView& view : rest.trajectories_) {
    rest.retained_.emplace_back(Ref<const Layout>::share(view.layout), view.pieces());
    view = rest.retained_.back().view();
  }
  rest.drawn_at_ns_ = drawn_at_ns_;
  rest.table_size_ = table_size_;
  rest.least_probability_ = least_probability_;
  rest.sampler_mass_ = sampler_mass_;
  rest.rate_limited_ = rate_limited_;
  return rest;
}

void SampleBatch::retain() {
  if (pins_.empty()) return;
  retained_.reserve(trajectories_.size());
  for (TrajectoryView& view : trajectories_) {
    retained_.emplace_back(Ref<const Layout>::share(view.layout), view.pieces());
    view = retained_.back().view();
  }
  pins_.clear();
}

void SampleBatch::clear() {
  keys_.clear();
  tickets_.clear();
  probabilities_.clear();
  priorities_.clear();
  inserted_at_ns_.clear();
  table_sizes_.clear();
  versions_.clear();
  times_sampled_.clear();
  redelivered_.clear();
  trajectories_.clear();
  shards_.clear();
  pins_.clear();
  retained_.clear();
  drawn_at_ns_ = 0;
  table_size_ = 0;
  least_probability_ = 0;
  sampler_mass_ = 0;
  is_brief_ = false;
  rate_limited_ = false;
}

}  // namespace reverie
