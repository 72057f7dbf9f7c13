// BatchStream: batches of a table without end, drawn and gathered ahead by a thread of its own.
//
//     BatchStream stream(service, {.table = "replay", .batch_size = 256});
//     while (Result<DrawnBatch> drawn = stream.next({}); drawn.ok()) learn(*drawn);
//
//     sample --> gather --> queue, at most `depth` --> next() next() ...
//
// Where items leave their table with their samples (a queue), nothing is drawn ahead unless a depth
// is given, and close() hands back what was not taken.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/client/drawn_batch.h"
#include "reverie/client/prefetcher.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct BatchStreamOptions {
  std::string table;
  std::size_t batch_size = 1;
  std::optional<Duration> timeout = {};  // for each batch; none: without limit
  Weighing weighing = {};
  bool distinct = false;
  bool pad = false;
  bool drop_last = false;  // drop a batch that the timeout cut short
  OnCorrupt on_corrupt = OnCorrupt::kRemove;
  std::shared_ptr<ExternalFiles> files = nullptr;  // as BatchOptions::files
  // Batches that may wait for their user. None: 2, or 0 where items leave with their samples.
  std::optional<std::size_t> depth = {};
  // The service is behind a network: the next request is on its way while a batch is gathered.
  bool is_far = false;
  // Samples after which an item leaves its table, below 1 where it does not. None: the service is
  // asked before the first batch.
  std::optional<std::int64_t> max_times_sampled = {};
};

// One thread at a time in next(); close() from any.
class BatchStream {
 public:
  static constexpr std::size_t kDepth = 2;

  BatchStream(std::shared_ptr<ReplayService> service, BatchStreamOptions options);
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;
  ~BatchStream() { close(); }

  // The next batch. DEADLINE_EXCEEDED when none came within the timeout, and from then on;
  // CANCELLED once closed or interrupted; else what the service says.
  Result<DrawnBatch> next(const WaitOptions& wait);
  // The next batch if it is made already, without a wait.
  std::optional<DrawnBatch> next_now();
  // Ends the thread and hands back what was not taken; a warning tells of samples that are lost.
  // Idempotent.
  void close();
  bool is_closed() const;

 private:
  class Maker;
  struct Running;

  std::int64_t ask_max_times_sampled(const WaitOptions& wait, Status& failed) const;
  std::shared_ptr<Running> running() const;
  void start(std::int64_t max_times_sampled) REVERIE_REQUIRES(mutex_);

  const std::shared_ptr<ReplayService> service_;
  const BatchStreamOptions options_;
  mutable Mutex mutex_;
  std::shared_ptr<Running> running_ REVERIE_GUARDED_BY(mutex_);  // null until the first batch
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
