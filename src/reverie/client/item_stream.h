// ItemStream: items of a table, read one by one and drawn ahead by several
// threads.
//
//     ItemStream stream(service, {.feed = {.table = "replay", .request_max = 64}});
//     while (Result<FedSamples> fed = stream.next({}); fed.ok()) read(*fed);
//
//     SampleFeed --+
//     SampleFeed --+--> queue, at most one batch per thread --> next() next() ...
//     SampleFeed --+
//
// If samples remove items from their table (a queue), close() hands back what was not taken. A
// batch that comes too late ends the stream only if the reader has waited for the whole timeout.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "reverie/client/prefetcher.h"
#include "reverie/client/prefetcher_pause.h"
#include "reverie/client/read_receipts.h"
#include "reverie/client/sample_feed.h"
#include "reverie/service/replay_service.h"

namespace reverie {

struct ItemStreamOptions {
  SampleFeedOptions feed = {};
  std::size_t thread_count = 1;
  std::int64_t samples_max = 0;  // for all threads together; 0: no bound
  // Samples after which an item leaves its table; below 1: never.
  std::int64_t max_times_sampled = 0;
};

// Only one thread at a time may call next(); any thread may call close().
class ItemStream {
 public:
  // Requires at least one thread. Throws std::system_error if one cannot be started.
  ItemStream(std::shared_ptr<ReplayService> service, const ItemStreamOptions& options);
  ItemStream(const ItemStream&) = delete;
  ItemStream& operator=(const ItemStream&) = delete;
  ~ItemStream() { close(); }

  // The next items, at least one. OUT_OF_RANGE after samples_max items, DEADLINE_EXCEEDED if none
  // came within the feed's timeout; CANCELLED once closed or interrupted; else the service's
  // error.
  Result<FedSamples> next(const WaitOptions& wait);
  // The next items if they are ready, without waiting.
  std::optional<FedSamples> next_now();
  // Ends the threads and hands back what was not taken, after `unused`: samples of the last next()
  // that the reader does not need. Logs a warning if samples are lost. Idempotent.
  void close(SampleBatch unused = {});

 private:
  std::vector<Prefetcher<FedSamples>::Make> feeds(const ItemStreamOptions& options);
  // In a pause, after which items are drawn again.
  void hand_back_to_go_on(std::deque<FedSamples> unused);

  const std::shared_ptr<ReplayService> service_;
  const std::string table_;
  const std::int64_t max_times_sampled_;
  const std::shared_ptr<SampleFeed::Budget> budget_;  // null: no bound
  ReadReceipts receipts_;
  Prefetcher<FedSamples> prefetcher_;
  const std::shared_ptr<PrefetcherPause<FedSamples>> pause_;
};

}  // namespace reverie
