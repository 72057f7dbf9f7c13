// Tested in tests/integration/replay_stream_test.cc.
#include "reverie/transitions/replay_stream.h"

#include <deque>
#include <utility>

namespace reverie {

ReplayStream::ReplayStream(std::shared_ptr<ReplayBuffer> buffer, ReplayStreamOptions options)
    : buffer_(std::move(buffer)),
      options_(options),
      layout_(buffer_->plan(), options_.batch_size),
      beta_(options_.beta.value_or(0)),
      random_(options_.seed),
      prefetcher_(
          options_.depth, [this](const WaitOptions& wait) { return make(wait); }, /*pauses=*/1),
      pause_(PrefetcherPause<std::vector<Buffer>>::start(
          buffer_->ahead_readers(), prefetcher_, [](const std::deque<std::vector<Buffer>>&) {})) {}

Result<std::vector<Buffer>> ReplayStream::make(const WaitOptions& wait) {
  REVERIE_ASSIGN_OR_RETURN(std::vector<Buffer> buffers, layout_.allocate(Allocator::heap()));
  std::vector<std::byte*> places;
  places.reserve(buffers.size());
  for (Buffer& made : buffers) places.push_back(made.data());
  ReplayBufferDraw draw;
  draw.count = options_.batch_size;
  draw.distinct = options_.distinct;
  draw.over_buffer = options_.over_buffer;
  while (true) {
    const std::optional<TimePoint> wanted = prefetcher_.wanted_since();
    draw.shard_choice = random_.uniform();
    if (options_.beta) draw.beta = beta_.load(std::memory_order_relaxed);
    draw.deadline = TimePoint::max();
    if (options_.timeout) {
      draw.deadline = wanted.value_or(Clock::system().now()) + *options_.timeout;
    }
    const Status status = buffer_->sample(draw, layout_.targets(places), wait);
    if (status.ok()) return buffers;
    const bool is_empty = status.code() == StatusCode::kFailedPrecondition;
    const bool lacks_distinct = options_.distinct && status.code() == StatusCode::kInvalidArgument;
    if (!is_empty && !lacks_distinct) return status;
    // There may be more items once the user waits. If it did so from before the draw on, there are
    // not.
    if (!wanted || prefetcher_.wanted_since() != wanted) {
      if (!prefetcher_.wait_until_wanted()) return cancelled("no user waits for this batch");
      continue;
    }
    // An empty buffer ends the stream without an error: no thread adds any more.
    return is_empty ? deadline_exceeded("{}", status.message()) : status;
  }
}

}  // namespace reverie
