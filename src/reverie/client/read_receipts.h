// ReadReceipts: tells a durable service which samples a reader has finished with.
//
//     took(batch 1)      open: after a crash, batch 1 is drawn again
//     finish()           the reader asks for the next one, or ends: batch 1 is received
//
// So the samples that a reader works on when its process is killed are not lost.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe. Does nothing for a table that keeps no receipts.
class ReadReceipts {
 public:
  ReadReceipts(ReplayService& service, std::string table)
      : service_(service), table_(std::move(table)), are_kept_(service.keeps_receipts(table_)) {}

  // Whether the reader's requests await receipts (SampleRequest::awaits_receipt).
  bool are_kept() const { return are_kept_; }
  void took(const SampleBatch& samples) {
    if (!are_kept_) return;
    MutexLock lock(mutex_);
    open_ = draws_of(samples);
  }
  void finish() {
    if (!are_kept_) return;
    std::vector<DrawId> done;
    {
      MutexLock lock(mutex_);
      done.swap(open_);
    }
    if (!done.empty()) service_.receive(table_, done);
  }

 private:
  ReplayService& service_;
  const std::string table_;
  const bool are_kept_;
  Mutex mutex_;
  std::vector<DrawId> open_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
