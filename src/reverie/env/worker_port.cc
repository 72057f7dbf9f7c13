// Tested in shared_pool_test.cc.
#include "reverie/env/worker_port.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace reverie {
namespace {

// The end of a traceback, which says the most. Cut where a character begins.
std::string_view end_of(std::string_view text) {
  if (text.size() <= kFailureTextMax) return text;
  std::size_t begin = text.size() - kFailureTextMax;
  while (begin < text.size() && (static_cast<unsigned char>(text[begin]) & 0xC0u) == 0x80u) ++begin;
  return text.substr(begin);
}

}  // namespace

WorkerPort::WorkerPort(SharedView view, std::size_t worker, Duration spin)
    : view_(std::move(view)),
      worker_(worker),
      range_(view_.layout().range_of(worker)),
      spin_(spin) {
  block().at_env.store(kNoEnv);
}

std::optional<PoolCommand> WorkerPort::next(Duration at_most) {
  WorkerBlock& mine = block();
  if (!spin_while_equal(mine.posted, taken_, spin_)) {
    const Clock& clock = Clock::system();
    const TimePoint end = clock.now() + at_most;
    while (true) {
      mine.is_asleep.store(1);
      if (mine.posted.load() != taken_) break;
      const Duration left = end - clock.now();
      if (left <= Duration(0)) {
        mine.is_asleep.store(0);
        return std::nullopt;
      }
      futex_wait(mine.posted, taken_, left);
    }
    mine.is_asleep.store(0, std::memory_order_relaxed);
  }
  return view_.command(worker_, taken_++);
}

EnvRange WorkerPort::range_of(const PoolCommand& command) const {
  if (command.env == kWholeRange) return range_;
  return {command.env, command.env + std::size_t{1}};
}

void WorkerPort::fail(std::size_t batch, std::size_t env, std::string_view text) {
  WorkerBlock& mine = block();
  const bool is_outdated = mine.has_failed.load() == 0 ||
                           (mine.failed_batch == batch && mine.failed_env == env) ||
                           view_.state(mine.failed_batch, mine.failed_env) != EnvState::kBroken;
  if (is_outdated) {
    mine.has_failed.store(0);
    const std::string_view kept = end_of(text);
    std::memcpy(mine.failure, kept.data(), kept.size());
    mine.failure_bytes = static_cast<std::uint32_t>(kept.size());
    mine.failed_batch = static_cast<std::uint32_t>(batch);
    mine.failed_env = static_cast<std::uint32_t>(env);
    mine.has_failed.store(1);
  }
  view_.set_state(batch, env, EnvState::kBroken);
}

void WorkerPort::finish(const PoolCommand& command) {
  WorkerBlock& mine = block();
  mine.at_env.store(kNoEnv, std::memory_order_relaxed);
  if (command.env == kWholeRange) {
    view_.done(command.batch, worker_).store(command.sequence, std::memory_order_release);
  } else {
    const std::uint32_t count = mine.ready_count.load(std::memory_order_relaxed);
    view_.ready(worker_, count) = command.env;
    mine.ready_count.store(count + 1, std::memory_order_release);
  }
  BatchBlock& batch = view_.batch(command.batch);
  const std::uint32_t arrived = batch.arrived.fetch_add(1) + 1;
  // Compared as a difference, since both counters wrap around at 2^32.
  const auto beyond = static_cast<std::int32_t>(arrived - batch.target.load());
  if (beyond >= 0 && batch.is_awaited.load() != 0) {
    batch.is_awaited.store(0);
    futex_wake_all(batch.arrived);
  }
}

}  // namespace reverie
