// ReplayStream: an endless stream of batches of a replay buffer, drawn and gathered ahead by its
// own thread.
//
//     ReplayStream stream(buffer, {.batch_size = 256});
//     while (Result<std::vector<Buffer>> arrays = stream.next({}); arrays.ok()) learn(*arrays);
//
// A buffer without enough items ends the stream only if the user is waiting for a batch, and has
// done so for the whole timeout.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/random.h"
#include "reverie/client/prefetcher.h"
#include "reverie/client/prefetcher_pause.h"
#include "reverie/transitions/replay_batch_layout.h"
#include "reverie/transitions/replay_buffer.h"

namespace reverie {

struct ReplayStreamOptions {
  std::size_t batch_size = 1;
  std::optional<Duration> timeout = {};  // for each batch; none: no limit
  bool distinct = false;
  // As in ReplayBufferDraw.
  std::optional<double> beta = {};
  bool over_buffer = false;
  std::size_t depth = 2;   // batches made ahead, at least 1
  std::uint64_t seed = 0;  // of the choice among several tables
};

// Only one thread at a time may call next(); any thread may call set_beta() and close().
class ReplayStream {
 public:
  // Throws std::system_error if its thread cannot be started.
  ReplayStream(std::shared_ptr<ReplayBuffer> buffer, ReplayStreamOptions options);
  ReplayStream(const ReplayStream&) = delete;
  ReplayStream& operator=(const ReplayStream&) = delete;
  ~ReplayStream() { close(); }

  // Describes the arrays of a batch.
  const ReplayBatchLayout& layout() const { return layout_; }

  // The arrays of the next batch, in the layout's order. DEADLINE_EXCEEDED if the buffer was empty
  // for the whole timeout, which begins with the call; CANCELLED once closed or interrupted; else
  // the error of ReplayBuffer::sample().
  Result<std::vector<Buffer>> next(const WaitOptions& wait) { return prefetcher_.next(wait); }
  // The next batch if it is ready, without waiting.
  std::optional<std::vector<Buffer>> next_now() { return prefetcher_.next_now(); }
  // Sets the exponent of weights for batches drawn from now on. No effect if the options have no
  // beta.
  void set_beta(double beta) { beta_.store(beta, std::memory_order_relaxed); }
  // Ends the thread. Idempotent.
  void close() {
    (void)prefetcher_.close();
    pause_->detach();
  }

 private:
  Result<std::vector<Buffer>> make(const WaitOptions& wait);

  const std::shared_ptr<ReplayBuffer> buffer_;
  const ReplayStreamOptions options_;
  const ReplayBatchLayout layout_;
  std::atomic<double> beta_;
  Random random_;                               // of the prefetcher's thread
  Prefetcher<std::vector<Buffer>> prefetcher_;  // after all that its thread uses
  // A checkpoint drops the batches made ahead: they are drawn again, as after a load.
  const std::shared_ptr<PrefetcherPause<std::vector<Buffer>>> pause_;
};

}  // namespace reverie
