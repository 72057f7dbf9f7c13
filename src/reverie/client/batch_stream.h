// BatchStream: an endless stream of batches of a table, drawn and gathered ahead by its own thread.
//
//     BatchStream stream(service, {.table = "replay", .batch_size = 256});
//     while (Result<DrawnBatch> drawn = stream.next({}); drawn.ok()) learn(*drawn);
//
//     sample --> gather --> queue, at most `depth` --> next() next() ...
//
// If samples remove items from their table (a queue), nothing is drawn ahead unless a depth is
// given, and close() hands back what was not taken. A batch that comes too late ends the stream
// only if the user is waiting for it, and has done so for the whole timeout.
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
  std::optional<Duration> timeout = {};  // for each batch; none: no limit
  Weighing weighing = {};
  bool distinct = false;
  bool pad = false;
  bool drop_last = false;  // drop a batch that the timeout cut short
  OnCorrupt on_corrupt = OnCorrupt::kRemove;
  std::shared_ptr<ExternalFiles> files = nullptr;  // as BatchOptions::files
  // The number of batches made ahead. None: 2, or 0 if samples remove items.
  std::optional<std::size_t> depth = {};
  // The service is remote: the requests of all batches ahead are sent at once, and one more while
  // the user waits for a batch.
  bool is_far = false;
  // Samples after which an item leaves its table; below 1: never. None: the service is asked before
  // the first batch.
  std::optional<std::int64_t> max_times_sampled = {};
};

// Only one thread at a time may call next(); any thread may call close().
class BatchStream {
 public:
  static constexpr std::size_t kDepth = 2;

  BatchStream(std::shared_ptr<ReplayService> service, BatchStreamOptions options);
  BatchStream(const BatchStream&) = delete;
  BatchStream& operator=(const BatchStream&) = delete;
  ~BatchStream() { close(); }

  // The next batch. DEADLINE_EXCEEDED if none came within the timeout, which begins with the call,
  // and from then on; CANCELLED once closed or interrupted; RESOURCE_EXHAUSTED as long as the
  // system has no thread for it; else the service's error. Until the service has said after how
  // many samples items leave the table, nothing is drawn, and each call asks again.
  Result<DrawnBatch> next(const WaitOptions& wait);
  // The next batch if it is ready, without waiting.
  std::optional<DrawnBatch> next_now();
  // Ends the thread and hands back what was not taken; logs a warning if samples are lost.
  // Idempotent.
  void close();
  bool is_closed() const;

 private:
  class Maker;
  struct Running;

  Result<std::int64_t> ask_max_times_sampled(const WaitOptions& wait) const;
  std::shared_ptr<Running> running() const;
  Status start(std::int64_t max_times_sampled) REVERIE_REQUIRES(mutex_);
  static std::optional<DrawnBatch> take_ready(Running& stream);

  const std::shared_ptr<ReplayService> service_;
  const BatchStreamOptions options_;
  mutable Mutex mutex_;
  std::shared_ptr<Running> running_ REVERIE_GUARDED_BY(mutex_);  // null until the first batch
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
