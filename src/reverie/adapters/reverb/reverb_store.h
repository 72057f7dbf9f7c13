// The state that the calls of Reverb's service share: the store, and facts about its tables.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/adapters/reverb/chunk_transcoder.h"
#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/codec/codec.h"
#include "reverie/grpc/grpc_server.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/reverb_wire/item.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/sample_batch.h"
#include "reverie/service/served_checkpoints.h"

namespace reverie {

struct ReverbTable {
  wire::ColumnNames names;
  // How many inserts of a stream may wait before reading of the stream pauses.
  std::size_t pending_max = 1;
  // Whether samples that were drawn for a client and not sent are undone when it disconnects.
  bool undoes_unsent = false;
  // Whether the service must be told which samples arrived (ReplayService::receive).
  bool keeps_receipts = false;
};

// Keeps the memory of written batches for the next draws: there are many streams, but few draw at a
// time. Thread-safe.
class SpareBatches {
 public:
  SampleBatch take() {
    MutexLock lock(mutex_);
    if (batches_.empty()) return {};
    SampleBatch batch = std::move(batches_.back());
    batches_.pop_back();
    return batch;
  }
  // Requires an empty batch.
  void keep(SampleBatch batch) {
    MutexLock lock(mutex_);
    if (batches_.size() < kCountMax) batches_.push_back(std::move(batch));
  }

 private:
  static constexpr std::size_t kCountMax = 16;

  Mutex mutex_;
  std::vector<SampleBatch> batches_ REVERIE_GUARDED_BY(mutex_);
};

// Streams that may last as long as their client.
class OpenCalls {
 public:
  void add(const std::shared_ptr<GrpcServerCall>& call) {
    MutexLock lock(mutex_);
    if (calls_.size() >= pruned_at_) {
      std::erase_if(calls_, [](const auto& known) { return known.expired(); });
      pruned_at_ = 2 * calls_.size() + kPrunedAt;
    }
    calls_.push_back(call);
  }
  void finish_all(const Status& status) {
    std::vector<std::weak_ptr<GrpcServerCall>> calls;
    {
      MutexLock lock(mutex_);
      calls.swap(calls_);
    }
    for (const auto& known : calls) {
      if (const auto call = known.lock()) call->finish(status);
    }
  }

 private:
  static constexpr std::size_t kPrunedAt = 64;

  Mutex mutex_;
  std::vector<std::weak_ptr<GrpcServerCall>> calls_ REVERIE_GUARDED_BY(mutex_);
  std::size_t pruned_at_ REVERIE_GUARDED_BY(mutex_) = kPrunedAt;
};

struct ReverbStore {
  ReverbStore(std::shared_ptr<ReplayService> the_service, std::size_t cache_bytes_max,
              Clock& the_clock)
      : service(std::move(the_service)),
        clock(the_clock),
        transcoder(cache_bytes_max),
        sessions(std::make_shared<InsertSessions>(the_clock)) {}

  const ReverbTable* find(std::string_view table) const {
    const auto found = tables.find(table);
    return found == tables.end() ? nullptr : &found->second;
  }

  const std::shared_ptr<ReplayService> service;
  // The calendar time of samples; the simulated store's calendar is reproducible.
  std::int64_t (*calendar)() = &calendar_ns;
  Clock& clock;
  ChunkTranscoder transcoder;
  std::map<std::string, ReverbTable, std::less<>> tables;  // fixed once the service is made
  std::uint64_t state_high = 0;                            // random at the start: shows a restart
  std::uint64_t state_low = 0;
  CodecChoice codec = CodecChoice::kAuto;    // for raw chunks; kAuto, kRaw: kept as received
  std::size_t kept_bytes_max = 0;            // of chunks that one stream keeps for later items
  std::shared_ptr<ByteBudget> in_flight;     // the chunks of all streams; null: no bound
  std::shared_ptr<InsertSessions> sessions;  // never null
  ServedCheckpoints checkpoints;
  SpareBatches spare_batches;

  OpenCalls insert_calls;
  OpenCalls sample_calls;

  // Counted since the start.
  std::atomic<std::uint64_t> inserts{0};
  std::atomic<std::uint64_t> samples{0};         // written to a stream
  std::atomic<std::uint64_t> unsent_samples{0};  // drawn for a client that disconnected, and lost
  std::atomic<std::uint64_t> undone_samples{0};  // drawn for such a client, and undone
};

// Reverb's error texts, which its clients match.
Status reverb_no_table(std::string_view table);

}  // namespace reverie
