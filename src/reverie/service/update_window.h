// UpdateWindow: sends updates of priorities without waiting for their answers.
//
//     update --> [ waiting or in progress, at most kUpdatesMax ] --> done, or an error for the next
//
// A learner that waits for each answer spends a round trip per batch. With this it need not:
// updates reach the store in the order in which they were given, several in one call where they
// come fast (update_queue.h). One that fails is reported once, by the next update() or flush(),
// which then does nothing else.
#pragma once

#include <cstddef>
#include <memory>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/base/timer_queue.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe. May be destroyed while updates are in progress: they continue, but a call that is
// refused after that is not repeated update by update. flush() before prevents that.
class UpdateWindow {
 public:
  // Updates that have not ended.
  static constexpr std::size_t kUpdatesMax = 32;
  // For a server: the time between two calls, unless the updates that wait fill one. For a store in
  // this process it is zero.
  static constexpr Duration kPace = std::chrono::milliseconds(1);

  UpdateWindow(std::shared_ptr<ReplayService> service, Duration pace);
  UpdateWindow(const UpdateWindow&) = delete;
  UpdateWindow& operator=(const UpdateWindow&) = delete;
  ~UpdateWindow();

  ReplayService& service() const { return *service_; }
  // Takes an update, once there is room. Returns the error of an earlier one, or of this one if it
  // was refused at once; DEADLINE_EXCEEDED if there was no room in time. Requires no deletes.
  Status update(const MutateRequest& request, TimePoint deadline, const WaitOptions& wait);
  // Sends what waits: a request to the service that follows is behind all updates.
  void send();
  // Waits until no update is left. DEADLINE_EXCEEDED says how many are.
  Status flush(TimePoint deadline, const WaitOptions& wait);
  // The number of updates that have not ended.
  std::size_t count() const;

 private:
  class State;

  // Begins the calls whose time has come. False if one was answered at once.
  bool pump(bool is_urgent);

  const std::shared_ptr<ReplayService> service_;
  const ForkGuard fork_guard_;
  TimerQueue timers_;
  Alarm alarm_;        // calls pump()
  Mutex calls_mutex_;  // held while calls begin, so that they have the order of the updates
  const std::shared_ptr<State> state_;
};

}  // namespace reverie
