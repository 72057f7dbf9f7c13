// InFlight: a writer's items that their tables have not admitted or confirmed yet.
//
// Most inserts complete before the service returns; those cost no allocation, no count and no
// lock here. A queued insert has a record until its completion, which may come on any thread and
// after the writer is gone: so the state is reference-counted, and each record holds a share of
// it.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/ref.h"
#include "reverie/base/spin.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// insert() and the waits may be used by one thread; the rest is thread-safe.
class InFlight final : public RefCounted<InFlight> {
 public:
  explicit InFlight(Clock& clock) : clock_(clock) {}

  // Inserts one item. Returns the status of an insert that completed at once; ok for one that is
  // queued.
  Status insert(ReplayService& service, std::string_view table, Item item, std::uint64_t writer);

  std::size_t queued() const { return queued_.load(std::memory_order_acquire); }
  // Waits until at most `max_queued` are queued, or has_changes(). DEADLINE_EXCEEDED says how many
  // are queued; CANCELLED if interrupted.
  Status wait(ReplayService& service, std::size_t max_queued, TimePoint deadline,
              const WaitOptions& options);

  // Whether there is something to report: a loss, or that close() was called.
  bool has_changes() const { return has_changes_.load(std::memory_order_acquire); }
  // The losses since the last call, as one error; ok if there are none. An item that its table has,
  // but whose insert was not confirmed, is a loss too.
  Status take_losses();

  // Cancels what is queued. Later inserts are cancelled too.
  void close(ReplayService& service);
  bool closed() const { return closed_.load(std::memory_order_acquire); }

 private:
  friend class RefCounted<InFlight>;

  // One insert. The inserting thread and the completion race; the second one handles the result.
  struct Record {
    enum Phase : int { kInserting, kQueued, kDone };
    InFlight* owner = nullptr;
    std::atomic<Phase> phase{kInserting};
    InsertResult result;
    std::string table;
    RequestId id = 0;
    std::size_t place = 0;  // in records_
  };
  // Items of one table that were lost, or that it has without a confirmation.
  struct Loss {
    std::string table;
    bool is_in;
    std::size_t count;
    Status first;
  };

  ~InFlight() = default;
  static void complete(Record* record, InsertResult result);
  Status enlist(ReplayService& service, std::string_view table, RequestId id);
  void finish(Record* record);
  void add_loss(const Record& record) REVERIE_REQUIRES(mutex_);
  std::unique_ptr<Record> strike(Record* record) REVERIE_REQUIRES(mutex_);
  bool wait_for(std::size_t max_queued, TimePoint until);

  Clock& clock_;
  Spinner spinner_;                // used by the writer's thread
  std::unique_ptr<Record> spare_;  // for the next insert
  std::atomic<std::size_t> queued_{0};
  std::atomic<bool> has_changes_{false};
  std::atomic<bool> closed_{false};

  Mutex mutex_;
  CondVar changed_;
  // The waiting writer is woken when at most so many are left, not for each completion.
  std::optional<std::size_t> waits_for_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<Record>> records_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Loss> losses_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
