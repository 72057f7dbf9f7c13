#include "reverie/service/sample_batch.h"

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
  trajectories_.clear();
  pins_.clear();
  retained_.clear();
  drawn_at_ns_ = 0;
  table_size_ = 0;
  is_brief_ = false;
  rate_limited_ = false;
}

}  // namespace reverie
