#include "reverie/learn/parameter_server.h"

#include <algorithm>

#include "reverie/base/check.h"
#include "reverie/codec/byte_arrays.h"

namespace reverie {
namespace {

Status stopped() {
  return cancelled("the training was stopped");
}

}  // namespace

ParameterServer::ParameterServer(Agent& agent, const ParameterServerOptions& options)
    : agent_(agent),
      options_(options),
      published_(agent.weights(), options.asynchronous ? agent.weights().networks.size() : 1,
                 options.reader_count + options.learner_count),
      round_(options.learner_count) {
  REVERIE_CHECK(options.learner_count >= 1 && options.publish_interval >= 1);
  REVERIE_CHECK(!options.asynchronous || options.publish_interval == 1);
}

WeightsView ParameterServer::weights(std::size_t learner) {
  REVERIE_CHECK(learner < options_.learner_count);
  // No thread steps between a round's end and the last submit() of the next.
  if (!options_.asynchronous) return agent_.weights();
  return published_.acquire(options_.reader_count + learner);
}

Result<bool> ParameterServer::submit(std::size_t learner, Gradients& gradients,
                                     std::uint64_t version, double progress) {
  REVERIE_CHECK(learner < options_.learner_count);
  MutexLock lock(mutex_);
  if (is_stopped_) return stopped();
  REVERIE_RETURN_IF_ERROR(failure_);
  if (options_.asynchronous) return submit_alone(gradients, version, progress);
  return submit_to_round(learner, gradients, progress);
}

Result<bool> ParameterServer::submit_to_round(std::size_t learner, Gradients& gradients,
                                              double progress) {
  REVERIE_CHECK(round_[learner] == nullptr);
  round_[learner] = &gradients;
  if (++submitted_ < options_.learner_count) {
    const std::uint64_t number = round_number_;
    while (round_number_ == number && failure_.ok() && !is_stopped_) changed_.wait(mutex_);
    REVERIE_RETURN_IF_ERROR(failure_);
    if (round_number_ == number) return stopped();
    return true;
  }
  average();
  const Status status = step(*round_[0], progress, 1.0);
  std::ranges::fill(round_, nullptr);
  submitted_ = 0;
  ++round_number_;
  used_ += options_.learner_count;
  if (!status.ok()) failure_ = status;
  if (options_.learner_count > 1) changed_.notify_all();
  REVERIE_RETURN_IF_ERROR(status);
  return true;
}

Result<bool> ParameterServer::submit_alone(Gradients& gradients, std::uint64_t version,
                                           double progress) {
  const std::uint64_t now = agent_.weights().version;
  REVERIE_CHECK(version <= now);
  const std::uint64_t staleness = now - version;
  if (staleness > options_.staleness_max) {
    ++counts_.dropped;
    return false;
  }
  const double scale =
      options_.shrink_stale_steps ? 1.0 / (1.0 + static_cast<double>(staleness)) : 1.0;
  if (Status status = step(gradients, progress, scale); !status.ok()) {
    failure_ = status;
    return status;
  }
  ++used_;
  staleness_sum_ += static_cast<double>(staleness);
  counts_.staleness_max = std::max(counts_.staleness_max, staleness);
  return true;
}

void ParameterServer::average() {
  if (options_.learner_count == 1) return;
  Gradients& sum = *round_[0];
  const float share = 1.0f / static_cast<float>(options_.learner_count);
  for (std::size_t network = 0; network < sum.networks.size(); ++network) {
    if (sum.is_present[network] == 0) continue;
    const std::span<float> to = sum.networks[network].span();
    for (std::size_t learner = 1; learner < options_.learner_count; ++learner) {
      const std::span<const float> from = round_[learner]->networks[network].span();
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    }
    for (float& value : to) value *= share;
  }
}

Status ParameterServer::step(Gradients& gradients, double progress, double scale) {
  REVERIE_RETURN_IF_ERROR(agent_.step(gradients, progress, scale));
  ++counts_.steps;
  if (counts_.steps % options_.publish_interval == 0) published_.publish(agent_.weights());
  return {};
}

void ParameterServer::save(ByteWriter& out) const {
  MutexLock lock(mutex_);
  out.u64(counts_.steps).u64(counts_.dropped).u64(counts_.staleness_max);
  out.f64(staleness_sum_).u64(used_);
}

Status ParameterServer::load(ByteReader& in) {
  MutexLock lock(mutex_);
  counts_.steps = in.u64();
  counts_.dropped = in.u64();
  counts_.staleness_max = in.u64();
  staleness_sum_ = in.f64();
  used_ = in.u64();
  return check_done(in, "the parameter server");
}

ParameterServer::Counts ParameterServer::counts() const {
  MutexLock lock(mutex_);
  Counts counts = counts_;
  counts.staleness_mean = used_ == 0 ? 0 : staleness_sum_ / static_cast<double>(used_);
  return counts;
}

void ParameterServer::stop() {
  MutexLock lock(mutex_);
  is_stopped_ = true;
  changed_.notify_all();
}

}  // namespace reverie
