// Tested in tests/integration/training_test.cc.
#include "reverie/learn/learner_loop.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "reverie/codec/byte_arrays.h"
#include "reverie/selectors/selector.h"

namespace reverie {

LearnerLoop::LearnerLoop(const TrainSettings& settings, const Agent& agent,
                         std::shared_ptr<ReplayBuffer> replay, std::uint64_t seed)
    : settings_(settings),
      replay_(std::move(replay)),
      batch_(agent.spec(), settings.batch_size),
      learner_(agent.make_learner(settings.batch_size)),
      gradients_(agent.make_gradients(settings.batch_size)),
      random_(seed),
      priorities_(settings.batch_size) {}

Status LearnerLoop::sample(double progress) {
  ReplayBufferDraw draw;
  draw.count = settings_.batch_size;
  if (replay_->shards().count() > 1) draw.shard_choice = random_.uniform();
  if (settings_.prioritized) {
    draw.beta = settings_.beta_first + (settings_.beta_last - settings_.beta_first) * progress;
    draw.over_buffer = settings_.weights_over_buffer;
  }
  REVERIE_RETURN_IF_ERROR(replay_->sample(draw, batch_.targets(), {}));
  if (settings_.reward_scale != 1) {
    const auto scale = static_cast<float>(settings_.reward_scale);
    for (float& reward : batch_.rewards()) reward *= scale;
  }
  return {};
}

Gradients& LearnerLoop::learn(const WeightsView& weights) {
  learner_->learn(weights, batch_, random_, gradients_);
  return gradients_;
}

Status LearnerLoop::check_errors() const {
  if (!std::isfinite(settings_.huber_delta)) return {};
  const auto is_infinite = [](float error) { return std::isinf(error); };
  if (std::ranges::none_of(gradients_.td_errors, is_infinite)) return {};
  return invalid_argument(
      "the learner gave a TD error that is not finite; lower reward_scale or the learning rate");
}

Status LearnerLoop::update_priorities() {
  if (!settings_.prioritized) return {};
  for (std::size_t i = 0; i < priorities_.size(); ++i) {
    priorities_[i] = static_cast<double>(gradients_.td_errors[i]) + settings_.priority_epsilon;
  }
  return replay_->update(batch_.tickets(), priorities_, {}).status();
}

void LearnerLoop::save(ByteWriter& out) const {
  write_random(random_, out);
}

Status LearnerLoop::load(ByteReader& in) {
  REVERIE_RETURN_IF_ERROR(read_random(in, random_));
  return check_done(in, "a learner");
}

}  // namespace reverie
