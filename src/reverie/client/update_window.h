// UpdateWindow: updates of priorities that are sent without waiting for their answers.
//
//     update --> [ under way, at most kInFlightMax ] --> done, or an error that the next call gets
//
// A learner that waits for each answer spends a round trip a batch. Its updates may go without:
// they reach the store in the order in which they were given, and one that fails is reported once,
// by the next update() or flush(), which does nothing else then.
#pragma once

#include <cstddef>
#include <memory>

#include "reverie/base/clock.h"
#include "reverie/base/status.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Thread-safe. May be destroyed while updates are under way: they go on.
class UpdateWindow {
 public:
  // Requests.
  static constexpr std::size_t kInFlightMax = 32;

  explicit UpdateWindow(std::shared_ptr<ReplayService> service);

  // Hands an update over, once there is room. The error of an earlier one, or of this one where it
  // was refused at once; DEADLINE_EXCEEDED without room in time.
  Status update(const MutateRequest& request, TimePoint deadline, const WaitOptions& wait);
  // Waits until none is under way. DEADLINE_EXCEEDED says how many are.
  Status flush(TimePoint deadline, const WaitOptions& wait);
  // Under way now.
  std::size_t count() const;

 private:
  class State;

  const std::shared_ptr<ReplayService> service_;
  const std::shared_ptr<State> state_;
};

}  // namespace reverie
