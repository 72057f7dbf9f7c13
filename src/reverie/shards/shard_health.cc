#include "reverie/shards/shard_health.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

bool means_unreachable(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kCancelled;
}

}  // namespace

ShardHealth::ShardHealth(std::vector<std::string> texts, const ShardConnectionOptions& options)
    : options_(options), states_(texts.size()) {
  for (std::size_t s = 0; s < texts.size(); ++s) states_[s].text = std::move(texts[s]);
}

Status ShardHealth::why_down(ShardIndex shard) const {
  const State& state = states_[shard];
  return state.is_up ? Status() : state.why;
}

Status ShardHealth::none_answers() const {
  std::string text;
  for (const State& state : states_) {
    if (state.is_up) continue;
    if (!text.empty()) text += "; ";
    text += format("{}: {}", state.text, state.why.message());
  }
  return unavailable("no shard answers; {}", text);
}

ShardCall ShardHealth::open_call(ShardIndex shard, TimePoint now) {
  State& state = states_[shard];
  if (state.calls.empty()) {
    state.last_progress = now;
    state.silence_max = options_.probe_interval;
  }
  Pending& pending = state.calls[++last_id_];
  // It went down after the caller's check.
  pending.is_lost = !state.is_up;
  return {shard, last_id_};
}

ShardHealth::Attached ShardHealth::attach(const ShardCall& call, RequestId request) {
  auto& calls = states_[call.shard].calls;
  const auto found = calls.find(call.id);
  if (found == calls.end()) return Attached::kOver;
  found->second.request = request;
  const bool is_over = found->second.is_cancelled || found->second.is_lost;
  return is_over ? Attached::kMustCancel : Attached::kWaiting;
}

RequestId ShardHealth::cancel(const ShardCall& call) {
  auto& calls = states_[call.shard].calls;
  const auto found = calls.find(call.id);
  if (found == calls.end()) return 0;
  found->second.is_cancelled = true;
  return found->second.request;
}

ShardHealth::Ended ShardHealth::end_call(const ShardCall& call, Status status, TimePoint now) {
  State& state = states_[call.shard];
  const auto found = state.calls.find(call.id);
  const Pending pending = found->second;
  state.calls.erase(found);
  state.last_progress = now;
  state.silence_max = options_.probe_interval;
  if (pending.is_lost && status.code() == StatusCode::kCancelled) {
    return {state.why.ok() ? unavailable("{} was lost", state.text)
                           : unavailable("{}: {}", state.text, state.why.message())};
  }
  if (status.ok() || is_closed_) return {std::move(status)};
  const bool is_gone = status.code() == StatusCode::kUnavailable ||
                       (status.code() == StatusCode::kCancelled && !pending.is_cancelled);
  if (is_gone) return {unavailable("{}: {}", state.text, status.message()), true};
  return {states_.size() == 1 ? std::move(status) : status.with_context(state.text)};
}

std::optional<std::vector<RequestId>> ShardHealth::lose(ShardIndex shard, const Status& why) {
  if (is_closed_) return std::nullopt;
  State& state = states_[shard];
  state.why = why;
  if (!std::exchange(state.is_up, false)) return std::nullopt;
  std::vector<RequestId> lost;
  for (auto& [id, pending] : state.calls) {
    pending.is_lost = true;
    if (pending.request != 0) lost.push_back(pending.request);
  }
  return lost;
}

ShardHealth::Checkup ShardHealth::check_health(TimePoint now) {
  Checkup checkup;
  if (is_closed_) return checkup;
  for (std::size_t s = 0; s < states_.size(); ++s) {
    State& state = states_[s];
    const auto shard = static_cast<ShardIndex>(s);
    const bool is_waiting = !state.calls.empty();
    checkup.is_needed |= is_waiting || !state.is_up || state.is_probed;
    if (state.is_probed) {
      const bool is_silent = now - state.probed_at >= options_.probe_timeout;
      if (state.is_up && is_silent) checkup.silent.push_back(shard);
    } else if (!state.is_up || (is_waiting && now - state.last_progress >= state.silence_max)) {
      state.is_probed = true;
      state.probed_at = now;
      checkup.to_probe.push_back(shard);
    }
  }
  if (!checkup.silent.empty()) {
    checkup.silence = unavailable("no answer within {:.3g} s", to_seconds(options_.probe_timeout));
  }
  return checkup;
}

ShardHealth::Probed ShardHealth::take_probe(ShardIndex shard, const Status& status, TimePoint now) {
  State& state = states_[shard];
  // A service that refuses this client is up; requests will report the refusal.
  const bool is_gone =
      means_unreachable(status.code()) || status.code() == StatusCode::kDeadlineExceeded;
  if (!is_gone && !state.is_up && !is_closed_) return Probed::kReturning;
  state.is_probed = false;
  if (is_gone) return Probed::kGone;
  state.last_progress = now;
  state.silence_max = std::min(2 * state.silence_max, options_.probe_interval_max);
  return Probed::kAlive;
}

bool ShardHealth::end_return(ShardIndex shard, bool is_repaired, TimePoint now) {
  State& state = states_[shard];
  state.is_probed = false;
  if (!is_repaired || is_closed_) return false;
  state.last_progress = now;
  state.is_up = true;
  return true;
}

}  // namespace reverie
