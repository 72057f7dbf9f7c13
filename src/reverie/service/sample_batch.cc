#include "reverie/service/sample_batch.h"

namespace reverie {

void SampleBatch::reserve(std::size_t count) {
  keys_.reserve(count);
  tickets_.reserve(count);
  probabilities_.reserve(count);
  priorities_.reserve(count);
  inserted_at_ns_.reserve(count);
  table_sizes_.reserve(count);
  versions_.reserve(count);
  times_sampled_.reserve(count);
  trajectories_.reserve(count);
}

void SampleBatch::add(const SampledItem& item) {
  keys_.push_back(item.key);
  tickets_.push_back(item.ticket.packed());
  probabilities_.push_back(item.probability);
  priorities_.push_back(item.priority);
  inserted_at_ns_.push_back(item.inserted_at_ns);
  table_sizes_.push_back(item.table_size);
  versions_.push_back(item.version);
  times_sampled_.push_back(item.times_sampled);
  trajectories_.push_back(item.trajectory);
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
  rate_limited_ = false;
}

}  // namespace reverie
