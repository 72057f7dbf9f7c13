// ReplayStream: batches of a replay buffer without end, drawn and gathered ahead by a thread of its
// own.
//
//     ReplayStream stream(buffer, {.batch_size = 256});
//     while (Result<std::vector<Buffer>> arrays = stream.next({}); arrays.ok()) learn(*arrays);
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/client/prefetcher.h"
#include "reverie/transitions/replay_batch_layout.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

struct ReplayStreamOptions {
  std::size_t batch_size = 1;
  std::optional<Duration> timeout = {};  // for each batch; none: without limit
  bool distinct = false;
  // As in ReplayBufferDraw.
  std::optional<double> beta = {};
  bool over_buffer = false;
  std::size_t depth = 2;  // batches that may wait for their user, at least 1
};

// One thread at a time in next(); set_beta() and close() from any.
class ReplayStream {
 public:
  ReplayStream(std::shared_ptr<ReplayBuffer> buffer, ReplayStreamOptions options);
  ReplayStream(const ReplayStream&) = delete;
  ReplayStream& operator=(const ReplayStream&) = delete;

  // What the arrays of a batch are.
  const ReplayBatchLayout& layout() const { return layout_; }

  // The arrays of the next batch, in the layout's order. DEADLINE_EXCEEDED when the buffer was
  // empty for as long as the timeout; CANCELLED once closed or interrupted; else what
  // ReplayBuffer::sample() says.
  Result<std::vector<Buffer>> next(const WaitOptions& wait) { return prefetcher_.next(wait); }
  // The next batch if it is made already, without a wait.
  std::optional<std::vector<Buffer>> next_now() { return prefetcher_.next_now(); }
  // The exponent of the weights of batches that are drawn from now on. Without effect where the
  // options have none.
  void set_beta(double beta) { beta_.store(beta, std::memory_order_relaxed); }
  // Ends the thread. Idempotent.
  void close() { (void)prefetcher_.close(); }

 private:
  Result<std::vector<Buffer>> make(const WaitOptions& wait);

  const std::shared_ptr<ReplayBuffer> buffer_;
  const ReplayStreamOptions options_;
  const ReplayBatchLayout layout_;
  std::atomic<double> beta_;
  Prefetcher<std::vector<Buffer>> prefetcher_;  // last: its thread uses the others
};

}  // namespace reverie
