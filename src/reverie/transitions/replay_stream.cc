// Tested in tests/integration/replay_stream_test.cc.
#include "reverie/transitions/replay_stream.h"

#include <utility>

namespace reverie {

ReplayStream::ReplayStream(std::shared_ptr<ReplayBuffer> buffer, ReplayStreamOptions options)
    : buffer_(std::move(buffer)),
      options_(options),
      layout_(buffer_->plan(), options_.batch_size),
      beta_(options_.beta.value_or(0)),
      prefetcher_(options_.depth, [this](const WaitOptions& wait) { return make(wait); }) {}

Result<std::vector<Buffer>> ReplayStream::make(const WaitOptions& wait) {
  REVERIE_ASSIGN_OR_RETURN(std::vector<Buffer> buffers, layout_.allocate(Allocator::heap()));
  std::vector<std::byte*> places;
  places.reserve(buffers.size());
  for (Buffer& made : buffers) places.push_back(made.data());
  ReplayBufferDraw draw;
  draw.count = options_.batch_size;
  draw.distinct = options_.distinct;
  if (options_.beta) draw.beta = beta_.load(std::memory_order_relaxed);
  draw.over_buffer = options_.over_buffer;
  draw.deadline = options_.timeout ? Clock::system().now() + *options_.timeout : TimePoint::max();
  const Status status = buffer_->sample(draw, layout_.targets(places), wait);
  // An empty buffer ends the stream without an error: no thread adds any more.
  if (status.code() == StatusCode::kFailedPrecondition) {
    return deadline_exceeded("{}", status.message());
  }
  REVERIE_RETURN_IF_ERROR(status);
  return buffers;
}

}  // namespace reverie
