#include "reverie/learn/parameter_server.h"

#include <algorithm>

#include "reverie/base/check.h"
#include "reverie/base/cores.h"
#include "reverie/base/cpu_pause.h"
#include "reverie/codec/byte_arrays.h"

namespace reverie {
namespace {

// 30 to 100 us, by processor: longer than learners usually differ, and than a wake-up takes.
constexpr int kSpins = 1'500;

// None where threads are more than cores: the one that is waited for may need this one's.
int spins_of(const ParameterServerOptions& options) {
  const std::size_t cores = available_cores();
  const std::size_t actors = options.reader_count - std::min<std::size_t>(options.reader_count, 2);
  return cores >= options.learner_count + actors ? kSpins : 0;
}

Status stopped() {
  return cancelled("the training was stopped");
}

}  // namespace

ParameterServer::ParameterServer(Agent& agent, const ParameterServerOptions& options)
    : agent_(agent),
      options_(options),
      spins_(spins_of(options)),
      published_(agent.weights(), options.asynchronous ? agent.weights().networks.size() : 1,
                 options.reader_count + options.learner_count),
      round_(options.learner_count),
      square_sums_(options.learner_count) {
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
  if (!options_.asynchronous) return submit_to_round(learner, gradients, progress);
  MutexLock lock(mutex_);
  if (is_stopped_) return stopped();
  REVERIE_RETURN_IF_ERROR(failure_);
  return submit_alone(gradients, version, progress);
}

bool ParameterServer::wait_for(const std::atomic<std::uint64_t>& counter, std::uint64_t number,
                               bool may_stop) {
  const auto has_come = [&] { return counter.load(std::memory_order_acquire) >= number; };
  const auto is_over = [&] {
    return has_come() || (may_stop && is_stopped_.load(std::memory_order_acquire));
  };
  for (int spin = 0; spin < spins_ && !is_over(); ++spin) cpu_pause();
  if (!is_over()) {
    MutexLock lock(mutex_);
    while (!is_over()) changed_.wait(mutex_);
  }
  return has_come();
}

Result<bool> ParameterServer::submit_to_round(std::size_t learner, Gradients& gradients,
                                              double progress) {
  std::uint64_t number = 0;
  {
    MutexLock lock(mutex_);
    if (is_stopped_) return stopped();
    REVERIE_RETURN_IF_ERROR(failure_);
    if (options_.learner_count == 1) {
      failure_ = agent_.step(gradients, progress, 1.0);
      REVERIE_RETURN_IF_ERROR(failure_);
      end_step(1);
      return true;
    }
    REVERIE_CHECK(round_[learner] == nullptr);
    number = finished_round_.load(std::memory_order_relaxed) + 1;
    round_[learner] = &gradients;
    if (++submitted_ == options_.learner_count) reach(full_round_, number);
  }
  if (!wait_for(full_round_, number, /*may_stop=*/true)) return stopped();
  // No learner leaves a full round, even if the server is stopped: its step is taken.
  REVERIE_RETURN_IF_ERROR(step_together(learner, number, progress));
  return true;
}

Status ParameterServer::step_together(std::size_t learner, std::uint64_t number, double progress) {
  const std::size_t count = options_.learner_count;
  const nn::Part part{learner, count};
  Gradients& mean = *round_[0];
  average(part);
  square_sums_[learner] = square_sums(mean, part);
  if (averaged_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    std::vector<double> all(mean.networks.size());
    for (const std::vector<double>& some : square_sums_) {
      for (std::size_t i = 0; i < all.size(); ++i) all[i] += some[i];
    }
    Status status = agent_.begin_step(mean, all, progress, 1.0);
    MutexLock lock(mutex_);
    has_failed_.store(!status.ok(), std::memory_order_relaxed);
    failure_ = std::move(status);
    reach(averaged_round_, number);
  }
  (void)wait_for(averaged_round_, number, /*may_stop=*/false);
  if (has_failed_.load(std::memory_order_relaxed)) {
    MutexLock lock(mutex_);
    return failure_;
  }
  agent_.step_part(mean, part);
  if (stepped_.fetch_add(1, std::memory_order_acq_rel) + 1 == count) {
    std::ranges::fill(round_, nullptr);
    averaged_.store(0, std::memory_order_relaxed);
    stepped_.store(0, std::memory_order_relaxed);
    MutexLock lock(mutex_);
    end_step(count);
    submitted_ = 0;
    reach(finished_round_, number);
  }
  (void)wait_for(finished_round_, number, /*may_stop=*/false);
  return {};
}

void ParameterServer::reach(std::atomic<std::uint64_t>& counter, std::uint64_t number) {
  counter.store(number, std::memory_order_release);
  changed_.notify_all();
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
  if (Status status = agent_.step(gradients, progress, scale); !status.ok()) {
    failure_ = status;
    return status;
  }
  end_step(1);
  staleness_sum_ += static_cast<double>(staleness);
  counts_.staleness_max = std::max(counts_.staleness_max, staleness);
  return true;
}

void ParameterServer::average(nn::Part part) {
  Gradients& sum = *round_[0];
  const float share = 1.0f / static_cast<float>(round_.size());
  for (std::size_t network = 0; network < sum.networks.size(); ++network) {
    if (sum.is_present[network] == 0) continue;
    const auto [begin, end] = part.of(sum.networks[network].float_count());
    const std::span<float> to = sum.networks[network].span().subspan(begin, end - begin);
    for (std::size_t learner = 1; learner < round_.size(); ++learner) {
      const float* const from = round_[learner]->networks[network].data() + begin;
      for (std::size_t i = 0; i < to.size(); ++i) to[i] += from[i];
    }
    for (float& value : to) value *= share;
  }
}

void ParameterServer::end_step(std::size_t gradient_count) {
  used_ += gradient_count;
  ++counts_.steps;
  if (counts_.steps % options_.publish_interval == 0) published_.publish(agent_.weights());
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
  is_stopped_.store(true, std::memory_order_release);
  changed_.notify_all();
}

}  // namespace reverie
