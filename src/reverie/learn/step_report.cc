// Tested in tests/integration/remote_actors_test.cc.
#include "reverie/learn/step_report.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>

#include "reverie/codec/byte_stream.h"
#include "reverie/group/fields.h"

namespace reverie {
namespace {

constexpr std::uint8_t kTerminated = 1;
constexpr std::uint8_t kTruncated = 2;

template <typename T>
void append(std::vector<T>& to, std::span<const std::byte> bytes) {
  const std::size_t before = to.size();
  to.resize(before + bytes.size() / sizeof(T));
  if (!bytes.empty()) std::memcpy(to.data() + before, bytes.data(), bytes.size());
}

template <typename T>
void put(std::vector<std::byte>& to, const std::vector<T>& values) {
  append(to, std::as_bytes(std::span(values)));
}

// The next `count` values of what was received.
template <typename T>
Result<std::vector<T>> take(std::span<const std::byte>& from, std::size_t count) {
  if (from.size() / sizeof(T) < count) {
    return data_loss("a report of steps ends {} bytes early", count * sizeof(T) - from.size());
  }
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), from.data(), count * sizeof(T));
  from = from.subspan(count * sizeof(T));
  return values;
}

Status check_finite(std::span<const float> values, const char* what) {
  const auto bad = std::ranges::find_if(values, [](float value) { return !std::isfinite(value); });
  if (bad == values.end()) return {};
  return data_loss("an actor reports {} of {}; all must be finite", what, *bad);
}

}  // namespace

Status StepReport::add(const StepArrays& step) {
  if (count_ == kStepsMax) return resource_exhausted("a report has {} steps already", count_);
  append(actions_, step.action[0].bytes);
  append(obs_, step.obs[0].bytes);
  last_next_.clear();
  append(last_next_, step.next_obs[0].bytes);
  rewards_.insert(rewards_.end(), step.reward.begin(), step.reward.end());
  for (std::size_t env = 0; env < env_count_; ++env) {
    const bool is_terminated = step.terminated[env] != 0;
    const bool is_truncated = step.truncated[env] != 0;
    ends_.push_back(static_cast<std::uint8_t>((is_terminated ? kTerminated : 0) |
                                              (is_truncated ? kTruncated : 0)));
    if (ends_.back() == 0) continue;
    const auto row = last_next_.begin() + static_cast<std::ptrdiff_t>(env * spec_.obs_width);
    finals_.insert(finals_.end(), row, row + static_cast<std::ptrdiff_t>(spec_.obs_width));
  }
  ++count_;
  return {};
}

Payload StepReport::take(const Sender& sender, std::span<const EpisodeRecord> episodes) {
  std::vector<std::byte> head;
  ByteWriter out(head);
  out.u64(sender.actor).u64(count_).u64(finals_.size() / std::max<std::size_t>(spec_.obs_width, 1));
  out.u64(episodes.size());
  for (const EpisodeRecord& episode : episodes) out.f64(episode.episode_return).u64(episode.length);
  if (sender.run != 0) out.u64(sender.run);  // a learner that tells none expects none
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 1);
  writer.bytes(head);
  auto data = std::make_shared<std::vector<std::byte>>();
  put(*data, actions_);
  put(*data, obs_);
  if (count_ > 0) put(*data, last_next_);
  put(*data, finals_);
  put(*data, rewards_);
  put(*data, ends_);
  if (!data->empty()) payload.bulk.push_back({std::span<const std::byte>(*data), data});
  count_ = 0;
  actions_.clear();
  obs_.clear();
  finals_.clear();
  rewards_.clear();
  ends_.clear();
  return payload;
}

namespace {

Result<std::span<const std::byte>> head_of(const Payload& payload) {
  FieldReader fields(payload);
  REVERIE_RETURN_IF_ERROR(fields.begin(1));
  REVERIE_ASSIGN_OR_RETURN(const auto head, fields.bytes());
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (payload.bulk.size() > 1) return data_loss("a report came in {} pieces", payload.bulk.size());
  return head;
}

// After the episodes.
void read_run(ByteReader& in, StepReport::Sender& sender) {
  if (in.left() > 0) sender.run = in.u64();
}

}  // namespace

Result<StepReport::Sender> StepReport::sender_of(const Payload& payload) {
  constexpr std::uint64_t kCountBytes = 16;  // of steps and ends
  constexpr std::uint64_t kEpisodeBytes = 16;
  REVERIE_ASSIGN_OR_RETURN(const auto head, head_of(payload));
  ByteReader in(head);
  Sender sender;
  sender.actor = in.u64();
  (void)in.raw(kCountBytes);
  (void)in.raw(std::min<std::uint64_t>(in.u64(), kEpisodesMax) * kEpisodeBytes);
  read_run(in, sender);
  if (!in.is_done()) return data_loss("a report of steps begins with {} bytes", head.size());
  return sender;
}

Result<StepReport::Read> StepReport::read(const Payload& payload, const AgentSpec& spec,
                                          std::size_t env_count, StepSink& sink) {
  REVERIE_ASSIGN_OR_RETURN(const auto head, head_of(payload));
  ByteReader in(head);
  Read read;
  read.sender.actor = in.u64();
  const std::uint64_t count = in.u64();
  const std::uint64_t final_count = in.u64();
  const std::uint64_t episode_count = in.u64();
  const std::size_t rows =
      static_cast<std::size_t>(std::min<std::uint64_t>(count, kStepsMax)) * env_count;
  if (!in.ok() || count > kStepsMax || episode_count > kEpisodesMax || final_count > rows) {
    return data_loss("a report of {} steps, {} ends and {} episodes; it has at most {} steps",
                     count, final_count, episode_count, kStepsMax);
  }
  for (std::uint64_t i = 0; i < episode_count && in.ok(); ++i) {
    EpisodeRecord& episode = read.episodes.emplace_back();
    episode.episode_return = in.f64();
    episode.length = in.u64();
    if (in.ok() && !std::isfinite(episode.episode_return)) {
      return data_loss("an actor reports the return {}; it must be finite", episode.episode_return);
    }
  }
  read_run(in, read.sender);
  if (!in.is_done()) return data_loss("a report of steps is cut short");

  std::span<const std::byte> data;
  if (!payload.bulk.empty()) data = payload.bulk.front().bytes;
  const std::size_t width = spec.obs_width;
  REVERIE_ASSIGN_OR_RETURN(const auto actions,
                           reverie::take<std::byte>(data, rows * spec.action_bytes()));
  REVERIE_ASSIGN_OR_RETURN(const auto obs,
                           reverie::take<float>(data, count > 0 ? (rows + env_count) * width : 0));
  REVERIE_ASSIGN_OR_RETURN(
      const auto finals, reverie::take<float>(data, static_cast<std::size_t>(final_count) * width));
  REVERIE_ASSIGN_OR_RETURN(const auto rewards, reverie::take<float>(data, rows));
  REVERIE_ASSIGN_OR_RETURN(const auto ends, reverie::take<std::uint8_t>(data, rows));
  if (!data.empty()) return data_loss("a report of steps has {} bytes too many", data.size());
  REVERIE_RETURN_IF_ERROR(check_finite(obs, "an observation"));
  REVERIE_RETURN_IF_ERROR(check_finite(finals, "an observation"));
  REVERIE_RETURN_IF_ERROR(check_finite(rewards, "a reward"));
  for (std::size_t row = 0; row < rows; ++row) {
    if (spec.is_discrete()) {
      std::int64_t action = 0;
      std::memcpy(&action, actions.data() + row * sizeof(action), sizeof(action));
      if (action >= 0 && action < static_cast<std::int64_t>(spec.action_count)) continue;
      return data_loss("an actor reports action {} of {}", action, spec.action_count);
    }
    std::vector<float> action(spec.action_width);
    std::memcpy(action.data(), actions.data() + row * spec.action_bytes(), spec.action_bytes());
    REVERIE_RETURN_IF_ERROR(check_finite(action, "an action"));
  }
  const auto ended = static_cast<std::size_t>(
      std::ranges::count_if(ends, [](std::uint8_t end) { return end != 0; }));
  const bool is_known =
      std::ranges::all_of(ends, [](std::uint8_t end) { return end <= (kTerminated | kTruncated); });
  if (ended != final_count || !is_known) {
    return data_loss("a report has {} ends of episodes, and {} last observations", ended,
                     final_count);
  }

  const Shape obs_shape = {static_cast<std::int64_t>(env_count), static_cast<std::int64_t>(width)};
  Shape action_shape = {static_cast<std::int64_t>(env_count)};
  if (!spec.is_discrete()) action_shape.push_back(static_cast<std::int64_t>(spec.action_width));
  std::vector<float> next(env_count * width);
  std::vector<std::uint8_t> terminated(env_count);
  std::vector<std::uint8_t> truncated(env_count);
  const float* final_row = finals.data();
  for (std::size_t at = 0; at < count; ++at) {
    const std::span<const float> now(obs.data() + at * env_count * width, env_count * width);
    std::copy_n(now.data() + now.size(), now.size(), next.data());
    for (std::size_t env = 0; env < env_count; ++env) {
      const std::uint8_t end = ends[at * env_count + env];
      terminated[env] = (end & kTerminated) != 0 ? 1 : 0;
      truncated[env] = (end & kTruncated) != 0 ? 1 : 0;
      if (end == 0) continue;
      std::copy_n(final_row, width, next.data() + env * width);
      final_row += width;
    }
    const TensorView obs_view{DType::kFloat32, obs_shape, std::as_bytes(now)};
    const TensorView next_view{DType::kFloat32, obs_shape, std::as_bytes(std::span(next))};
    const std::size_t action_bytes = env_count * spec.action_bytes();
    const TensorView action_view{spec.is_discrete() ? DType::kInt64 : DType::kFloat32, action_shape,
                                 std::span(actions).subspan(at * action_bytes, action_bytes)};
    StepArrays step;
    step.obs = {&obs_view, 1};
    step.action = {&action_view, 1};
    step.next_obs = {&next_view, 1};
    step.reward = {rewards.data() + at * env_count, env_count};
    step.terminated = terminated;
    step.truncated = truncated;
    REVERIE_RETURN_IF_ERROR(sink.add(step));
  }
  return read;
}

}  // namespace reverie
