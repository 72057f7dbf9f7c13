// Tested in tests/python/hindsight_test.py.
#include "reverie/transitions/hindsight.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <iterator>
#include <type_traits>
#include <utility>

#include "reverie/base/check.h"

namespace reverie {
namespace {

// A generator among a state: its seed and its four words, which are all that it has.
using GeneratorWords = std::array<std::uint64_t, 5>;
static_assert(sizeof(GeneratorWords) == sizeof(Random) && std::is_trivially_copyable_v<Random>);

}  // namespace

HindsightIndex::HindsightIndex(const TransitionPlan& plan, std::uint64_t seed)
    : plan_(plan),
      options_(*plan.options().hindsight),
      achieved_(plan.achieved_place()),
      row_bytes_(plan.row_bytes(achieved_.chunk_column)),
      goal_bytes_(plan.achieved_place().size_bytes),
      random_(seed),
      streams_(plan.options().env_count) {}

void HindsightIndex::clear() {
  MutexLock lock(mutex_);
  for (Stream& stream : streams_) stream = Stream();
  places_.clear();
  step_count_ = 0;
}

void HindsightIndex::add_chunk(std::size_t env, std::uint64_t number, Ref<const Chunk> chunk) {
  MutexLock lock(mutex_);
  Stream& stream = streams_[env];
  if (stream.chunks.empty()) stream.first_chunk = number;
  REVERIE_CHECK(number == stream.first_chunk + stream.chunks.size());
  places_[chunk->key()] = {env, number};
  stream.chunks.push_back({std::move(chunk), 0});
  drop_old(env);
  // This alone releases the chunks of a stream without new steps.
  drop_old(next_swept_);
  next_swept_ = (next_swept_ + 1) % streams_.size();
}

void HindsightIndex::add_step(std::size_t env, std::uint64_t episode_begin, std::uint64_t row) {
  MutexLock lock(mutex_);
  Stream& stream = streams_[env];
  if (stream.episodes.empty() || stream.episodes.back().begin != episode_begin) {
    stream.episodes.push_back({episode_begin, episode_begin});
  }
  stream.episodes.back().end = row + 2;
  const std::uint64_t number = row >> plan_.chunk_shift();
  stream.chunks[number - stream.first_chunk].last_step = ++step_count_;
}

void HindsightIndex::drop_old(std::size_t env) {
  Stream& stream = streams_[env];
  const std::uint64_t capacity = plan_.options().capacity;
  if (step_count_ <= capacity || stream.episodes.empty()) return;
  const std::uint64_t gone = step_count_ - capacity;
  const std::uint64_t last = (stream.episodes.back().end - 1) >> plan_.chunk_shift();
  while (stream.first_chunk + 1 < last && stream.chunks.front().last_step <= gone) {
    places_.erase(stream.chunks.front().chunk->key());
    stream.chunks.pop_front();
    ++stream.first_chunk;
  }
  const std::uint64_t kept = stream.first_chunk << plan_.chunk_shift();
  while (stream.episodes.size() > 1 && stream.episodes.front().end <= kept) {
    stream.episodes.pop_front();
  }
}

bool HindsightIndex::copy_goal(const Stream& stream, std::uint64_t row, std::byte* goal,
                               std::byte* next_goal) {
  const auto behind = std::ranges::upper_bound(stream.episodes, row, std::less(), &Episode::begin);
  if (behind == stream.episodes.begin()) return false;
  const Episode& episode = *std::prev(behind);
  if (row + 1 >= episode.end) return false;
  std::uint64_t begin = row + 1;  // the step's own achieved goal counts too
  if (options_.strategy == HindsightStrategy::kFinal) begin = episode.end - 1;
  if (options_.strategy == HindsightStrategy::kEpisode) {
    begin = std::max(episode.begin + 1, stream.first_chunk << plan_.chunk_shift());
  }
  const std::uint64_t picked = begin + random_.below(episode.end - begin);
  const std::uint64_t number = picked >> plan_.chunk_shift();
  const Chunk& chunk = *stream.chunks[number - stream.first_chunk].chunk;
  // An encoded chunk has this column raw too: TransitionPlan::make_packer().
  const RawRows raw(chunk);
  const std::byte* const rows = raw ? chunk.begin() + plan_.column_begin(achieved_.chunk_column)
                                    : chunk.encoded_bytes(achieved_.chunk_column).data();
  const std::byte* const achieved =
      rows + (picked & (plan_.chunk_rows() - 1)) * row_bytes_ + achieved_.offset;
  std::memcpy(goal, achieved, goal_bytes_);
  std::memcpy(next_goal, achieved, goal_bytes_);
  return true;
}

void HindsightIndex::relabel(std::span<const TrajectoryView> items,
                             const TransitionTargets& targets) {
  std::byte* const goals = targets.obs[plan_.goal_leaf()];
  std::byte* const next_goals = targets.next_obs[plan_.goal_leaf()];
  MutexLock lock(mutex_);
  for (std::size_t i = 0; i < items.size(); ++i) {
    targets.hindsight[i] = 0;
    if (random_.uniform() >= options_.share) continue;
    const Piece& piece = items[i].pieces().front();
    const auto place = places_.find(piece.chunk->key());
    if (place == places_.end()) continue;
    const std::uint64_t row = (place->second.number << plan_.chunk_shift()) + piece.offset;
    targets.hindsight[i] = copy_goal(streams_[place->second.env], row, goals + i * goal_bytes_,
                                     next_goals + i * goal_bytes_)
                               ? 1
                               : 0;
  }
}

// --- Checkpoints -------------------------------------------------------------------------------

void HindsightIndex::write(ByteWriter& out) {
  MutexLock lock(mutex_);
  for (const std::uint64_t word : std::bit_cast<GeneratorWords>(random_)) out.u64(word);
  out.u64(step_count_).u64(next_swept_);
  for (std::size_t env = 0; env < streams_.size(); ++env) {
    drop_old(env);
    const Stream& stream = streams_[env];
    out.u64(stream.first_chunk).u64(stream.chunks.size());
    for (const KnownChunk& known : stream.chunks) out.u64(known.chunk->key()).u64(known.last_step);
    out.u64(stream.episodes.size());
    for (const Episode& episode : stream.episodes) out.u64(episode.begin).u64(episode.end);
  }
}

Status HindsightIndex::restore(ByteReader& in, std::span<const Written> written,
                               const std::unordered_map<ChunkKey, Ref<const Chunk>>& chunks) {
  MutexLock lock(mutex_);
  REVERIE_CHECK(step_count_ == 0 && written.size() == streams_.size());
  GeneratorWords words;
  for (std::uint64_t& word : words) word = in.u64();
  random_ = std::bit_cast<Random>(words);
  step_count_ = in.u64();
  next_swept_ = in.u64();
  // A generator whose words are all zeros stays so.
  bool is_whole = (words[1] | words[2] | words[3] | words[4]) != 0 &&
                  step_count_ < std::uint64_t{1} << 62 && next_swept_ < streams_.size();
  for (std::size_t env = 0; env < streams_.size() && is_whole; ++env) {
    REVERIE_RETURN_IF_ERROR(read_stream(env, in, chunks));
    is_whole = is_sound(streams_[env], written[env]);
  }
  if (!is_whole || !in.ok()) return data_loss("the goals of a replay buffer contradict its rows");
  return {};
}

Status HindsightIndex::read_stream(std::size_t env, ByteReader& in,
                                   const std::unordered_map<ChunkKey, Ref<const Chunk>>& chunks) {
  Stream& stream = streams_[env];
  stream.first_chunk = in.u64();
  const std::size_t chunk_count = in.count64(16);
  for (std::size_t i = 0; i < chunk_count && in.ok(); ++i) {
    const ChunkKey key = in.u64();
    const std::uint64_t last_step = in.u64();
    const auto found = chunks.find(key);
    if (found == chunks.end()) {
      // The last two chunks of a stream stay in the index after their items are removed.
      if (!stream.chunks.empty()) return data_loss("chunk {} of a replay buffer is missing", key);
      ++stream.first_chunk;
      continue;
    }
    const std::uint64_t number = stream.first_chunk + stream.chunks.size();
    if (!places_.try_emplace(key, Place{env, number}).second) {
      return data_loss("chunk {} is at two places of a replay buffer", key);
    }
    stream.chunks.push_back({found->second, last_step});
  }
  const std::size_t episode_count = in.count64(16);
  for (std::size_t i = 0; i < episode_count && in.ok(); ++i) {
    const std::uint64_t begin = in.u64();
    stream.episodes.push_back({begin, in.u64()});
  }
  return {};
}

bool HindsightIndex::is_sound(const Stream& stream, const Written& written) const {
  const std::uint64_t chunk_end = stream.first_chunk + stream.chunks.size();
  bool is_sound = chunk_end == written.chunk_end && stream.first_chunk <= written.first_chunk;
  std::uint64_t end = 0;
  for (const Episode& episode : stream.episodes) {
    is_sound = is_sound && episode.begin >= end && episode.begin + 1 < episode.end;
    end = episode.end;
  }
  if (!is_sound || end > written.row_end) return false;
  for (std::size_t i = 0; i < stream.chunks.size(); ++i) {
    const std::uint64_t begin = (stream.first_chunk + i) << plan_.chunk_shift();
    const std::uint64_t rows =
        std::min<std::uint64_t>(end - std::min(begin, end), plan_.chunk_rows());
    if (stream.chunks[i].chunk->rows() < rows) return false;
  }
  return end <= chunk_end << plan_.chunk_shift();
}

}  // namespace reverie
