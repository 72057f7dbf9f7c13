// UpdateWindow: sends updates of priorities without waiting for their answers.
//
//     update --> [ in flight, at most kInFlightMax ] --> done, or an error that the next call gets
//
// A learner that waits for each answer spends a round trip per batch. With this it need not:
// updates reach the store in the order in which they were given, and one that fails is reported
// once, by the next update() or flush(), which then does nothing else.
#pragma once

#include <cstddef>
#include <memory>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe. May be destroyed while updates are in flight: they continue.
class UpdateWindow {
 public:
  // Updates in flight.
  static constexpr std::size_t kInFlightMax = 32;

  explicit UpdateWindow(std::shared_ptr<ReplayService> service);

  // Sends an update, once there is room. Returns the error of an earlier one, or of this one if it
  // was refused at once; DEADLINE_EXCEEDED if there was no room in time.
  Status update(const MutateRequest& request, TimePoint deadline, const WaitOptions& wait);
  // Waits until no update is in flight. DEADLINE_EXCEEDED says how many are.
  Status flush(TimePoint deadline, const WaitOptions& wait);
  // The number of updates in flight.
  std::size_t count() const;

 private:
  class State;

  const std::shared_ptr<ReplayService> service_;
  const std::shared_ptr<State> state_;
};

}  // namespace reverie
