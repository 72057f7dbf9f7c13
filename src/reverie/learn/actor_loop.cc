// Tested in tests/integration/training_test.cc.
#include "reverie/learn/actor_loop.h"

#include <algorithm>
#include <utility>

#include "reverie/codec/byte_arrays.h"
#include "reverie/selectors/selector.h"

namespace reverie {

ActorLoop::ActorLoop(std::unique_ptr<ActorEnvs> envs, std::unique_ptr<Policy> policy,
                     std::unique_ptr<StepSink> sink, ReturnLog& log, std::uint64_t seed)
    : envs_(std::move(envs)),
      policy_(std::move(policy)),
      sink_(std::move(sink)),
      log_(log),
      random_(seed),
      obs_(envs_->count() * envs_->spec().obs_width),
      next_obs_(obs_.size()),
      actions_(envs_->count() * envs_->spec().action_bytes()),
      returns_(envs_->count()),
      lengths_(envs_->count()) {
  const AgentSpec& spec = envs_->spec();
  const auto count = static_cast<std::int64_t>(envs_->count());
  obs_shape_ = {count, static_cast<std::int64_t>(spec.obs_width)};
  action_shape_ = {count};
  if (!spec.is_discrete()) action_shape_.push_back(static_cast<std::int64_t>(spec.action_width));
}

Status ActorLoop::check_step() const {
  REVERIE_RETURN_IF_ERROR(check_finite(*envs_, next_obs_));
  const EnvRows& rows = envs_->rows();
  for (std::size_t env = 0; env < envs_->count(); ++env) {
    if (rows.terminated[env] == 0 && rows.truncated[env] == 0) continue;
    return check_finite(*envs_, {rows.obs, obs_.size()});  // the first ones of other episodes
  }
  return {};
}

void ActorLoop::count_episodes(std::uint64_t step_number) {
  const EnvRows& rows = envs_->rows();
  for (std::size_t env = 0; env < envs_->count(); ++env) {
    returns_[env] += static_cast<double>(rows.rewards[env]);
    ++lengths_[env];
    if (rows.terminated[env] == 0 && rows.truncated[env] == 0) continue;
    log_.add({step_number, std::exchange(returns_[env], 0.0),
              std::exchange(lengths_[env], std::uint64_t{0})});
  }
}

Status ActorLoop::save(ByteWriter& out) const {
  write_random(random_, out);
  out.u8(is_begun_ ? 1 : 0);
  write_array<double>(returns_, out);
  write_array<std::uint64_t>(lengths_, out);
  if (!is_begun_) return {};
  REVERIE_ASSIGN_OR_RETURN(const std::vector<std::byte> envs, envs_->state(!is_untaken_));
  write_array<std::byte>(envs, out);
  // Used to check that the restored environments are the same.
  write_array<float>({is_untaken_ ? obs_.data() : envs_->rows().obs, obs_.size()}, out);
  return {};
}

Status ActorLoop::load(ByteReader& in) {
  REVERIE_RETURN_IF_ERROR(read_random(in, random_));
  is_begun_ = in.u8() != 0;
  returns_ = read_array<double>(in);
  lengths_ = read_array<std::uint64_t>(in);
  if (returns_.size() != envs_->count() || lengths_.size() != envs_->count()) {
    return data_loss("an actor with {} environments is given {}", envs_->count(), returns_.size());
  }
  if (!is_begun_) return check_done(in, "an actor");
  const std::vector<std::byte> envs = read_array<std::byte>(in);
  const std::vector<float> obs = read_array<float>(in);
  REVERIE_RETURN_IF_ERROR(check_done(in, "an actor"));
  REVERIE_RETURN_IF_ERROR(envs_->resume(envs));
  if (!std::ranges::equal(obs, std::span(envs_->rows().obs, obs_.size()))) {
    return failed_precondition(
        "{} does not repeat its episode from its seed and actions; a training in it cannot be "
        "resumed",
        envs_->id());
  }
  return {};
}

Status ActorLoop::step(const nn::Parameters& weights, std::uint64_t step_number) {
  if (!is_begun_) {
    REVERIE_RETURN_IF_ERROR(envs_->reset());
    REVERIE_RETURN_IF_ERROR(check_finite(*envs_, {envs_->rows().obs, obs_.size()}));
    is_begun_ = true;
  }
  const std::size_t count = envs_->count();
  const std::size_t width = envs_->spec().obs_width;
  const EnvRows& rows = envs_->rows();
  std::copy_n(rows.obs, obs_.size(), obs_.data());
  const Random before = random_;
  policy_->act(weights, {obs_.data(), count, width, width}, step_number, random_, actions_);
  Status status = envs_->step(actions_);
  if (status.ok()) {
    std::copy_n(rows.obs, next_obs_.size(), next_obs_.data());
    for (std::size_t env = 0; env < count; ++env) {
      if (rows.terminated[env] == 0 && rows.truncated[env] == 0) continue;
      std::copy_n(rows.final_obs + env * width, width, next_obs_.data() + env * width);
    }
    status = check_step();
  }
  if (!status.ok()) {
    // A step that a stop has interrupted, or whose numbers are refused, was not taken: a resumed
    // training takes it again.
    random_ = before;
    is_untaken_ = true;
    return status;
  }
  count_episodes(step_number + count);

  const bool is_discrete = envs_->spec().is_discrete();
  const TensorView obs{DType::kFloat32, obs_shape_, std::as_bytes(std::span(obs_))};
  const TensorView next_obs{DType::kFloat32, obs_shape_, std::as_bytes(std::span(next_obs_))};
  const TensorView action{is_discrete ? DType::kInt64 : DType::kFloat32, action_shape_, actions_};
  StepArrays step;
  step.obs = {&obs, 1};
  step.action = {&action, 1};
  step.next_obs = {&next_obs, 1};
  step.reward = {rows.rewards, count};
  step.terminated = {rows.terminated, count};
  step.truncated = {rows.truncated, count};
  return sink_->add(step);
}

}  // namespace reverie
