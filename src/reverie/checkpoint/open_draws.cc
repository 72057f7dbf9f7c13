#include "reverie/checkpoint/open_draws.h"

namespace reverie::checkpoint {

void OpenDraws::add(const SampleBatch& batch, std::size_t begin) {
  for (std::size_t i = begin; i < batch.size(); ++i) {
    const Id id{batch.tickets()[i], batch.times_sampled()[i]};
    if (!numbers_.try_emplace(id, last_number_ + 1).second) continue;
    Draw& draw = draws_[++last_number_];
    const TrajectoryView& view = batch.trajectories()[i];
    draw.trajectory = Trajectory(Ref<const Layout>::share(view.layout), view.pieces());
    draw.item.key = batch.keys()[i];
    draw.item.ticket = Ticket::unpack(batch.tickets()[i]);
    draw.item.priority = batch.priorities()[i];
    draw.item.inserted_at_ns = batch.inserted_at_ns()[i];
    draw.item.version = batch.versions()[i];
    draw.item.times_sampled = batch.times_sampled()[i];
    draw.item.is_redelivered = batch.is_redelivered(i);
    draw.item.trajectory = draw.trajectory.view();
  }
}

void OpenDraws::remove(DrawId draw) {
  const auto found = numbers_.find({draw.ticket, draw.times_sampled});
  if (found == numbers_.end()) return;
  draws_.erase(found->second);
  numbers_.erase(found);
}

SampleBatch OpenDraws::batch() const {
  SampleBatch batch;
  batch.reserve(draws_.size(), /*is_brief=*/false);
  for (const auto& [number, draw] : draws_) batch.add(draw.item);
  return batch;
}

}  // namespace reverie::checkpoint
