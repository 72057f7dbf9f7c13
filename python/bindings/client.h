// A client in Python: its service, and what its copies share.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/client/insert_step.h"
#include "reverie/client/item_reader.h"
#include "reverie/gather/corrupt_items.h"
#include "reverie/record/external_files.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/service/time_limit.h"
#include "reverie/service/update_window.h"

namespace reverie::python {

// The package's `on_corrupt`: "remove" or "raise".
inline OnCorrupt on_corrupt_of(bool raises) {
  return raises ? OnCorrupt::kRaise : OnCorrupt::kRemove;
}

class ClientHandle {
 public:
  // `local` is the same service if the store is in this process, else null. The keys that this
  // client's inserts and writers choose come from `seed` and a number that no other client of the
  // store has; without a seed from the system. A store in this process gives the number now, a
  // server when it is needed.
  ClientHandle(std::shared_ptr<ReplayService> service, std::shared_ptr<LocalService> local,
               OnCorrupt on_corrupt, std::optional<std::uint64_t> seed = {})
      : service_(std::move(service)),
        local_(std::move(local)),
        on_corrupt_(on_corrupt),
        updates_(std::make_shared<UpdateWindow>(service_,
                                                local_ ? Duration::zero() : UpdateWindow::kPace)),
        seeds_(std::make_shared<Seeds>()) {
    if (!seed) seeds_->random.emplace(std::optional<std::uint64_t>());
    seeds_->seed = seed.value_or(0);
    if (local_) next_seed({}).value();
  }

  // For calls, and what makes calls later: those come behind the updates given so far.
  const std::shared_ptr<ReplayService>& service() const {
    updates_->send();
    return service_;
  }
  const std::shared_ptr<LocalService>& local() const { return local_; }
  // The kinds of steps that insert() was given, shared by all copies.
  StepKinds& step_kinds() const { return *step_kinds_; }
  // What to do with drawn items that cannot be decoded.
  OnCorrupt on_corrupt() const { return on_corrupt_; }
  // Finds external columns; may be null. Set it before the handle is copied.
  const std::shared_ptr<ExternalFiles>& files() const { return files_; }
  void set_files(std::shared_ptr<ExternalFiles> files) { files_ = std::move(files); }
  // Shared by all copies.
  const std::shared_ptr<TablesDrawnAhead>& tables_drawn_ahead() const {
    return tables_drawn_ahead_;
  }
  // Updates without waiting, of all copies.
  UpdateWindow& updates() const { return *updates_; }
  // FAILED_PRECONDITION in a forked child.
  Status check() const { return fork_guard_.check("Client"); }
  // The seed of the next insert or writer. Thread-safe; may wait for a server, in `time` if given.
  Result<std::uint64_t> next_seed(const WaitOptions& wait, TimeLimit* time = nullptr) const {
    {
      MutexLock lock(seeds_->mutex);
      if (seeds_->random) return seeds_->random->next();
    }
    // Without the lock: signal handlers of the program run meanwhile, and may come here. The number
    // that comes first counts.
    const Result<std::uint64_t> number =
        new_client_and_wait(*service_, time != nullptr ? time->limit(wait) : wait);
    if (!number.ok()) return time != nullptr ? time->outcome(number.status()) : number.status();
    MutexLock lock(seeds_->mutex);
    if (!seeds_->random) seeds_->random.emplace(mix64(seeds_->seed ^ mix64(*number)));
    return seeds_->random->next();
  }

 private:
  std::shared_ptr<ReplayService> service_;
  std::shared_ptr<LocalService> local_;
  OnCorrupt on_corrupt_;
  std::shared_ptr<ExternalFiles> files_;
  std::shared_ptr<TablesDrawnAhead> tables_drawn_ahead_ = std::make_shared<TablesDrawnAhead>();
  std::shared_ptr<StepKinds> step_kinds_ = std::make_shared<StepKinds>();
  std::shared_ptr<UpdateWindow> updates_;
  struct Seeds {
    Mutex mutex;
    std::uint64_t seed = 0;
    // None until the client has its number.
    std::optional<Random> random REVERIE_GUARDED_BY(mutex);
  };
  std::shared_ptr<Seeds> seeds_;
  ForkGuard fork_guard_;
};

}  // namespace reverie::python
