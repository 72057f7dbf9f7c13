// AheadReaders: the readers of a store that draw ahead of their users, known to its checkpoints.
//
//     pause     each reader hands back what it has drawn and its user has not taken
//     freeze    the tables, as the checkpoint contains them
//     resume    each reader draws again, as one of a store loaded from the checkpoint does
//
// So a learner that resumes from a checkpoint gets every sample that it would have got.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"

namespace reverie {

// Thread-safe.
class AheadReader {
 public:
  virtual ~AheadReader() = default;
  // Interrupts what waits for samples, and draws no more until as many calls of resume(). Returns
  // at once.
  virtual void begin_pause() = 0;
  // In a pause: waits until nothing is drawn any more. False if that is not so by `deadline`.
  virtual bool wait_until_still(TimePoint deadline) = 0;
  // In a pause, once nothing is drawn: hands back what its user has not taken.
  virtual void hand_back() = 0;
  virtual void resume() = 0;
};

// Thread-safe.
class AheadReaders {
 public:
  // From now on the reader, which has drawn nothing yet, takes part in pauses, in those that have
  // begun too. It must not own the store: a pause may be the last to hold it.
  void add(const std::shared_ptr<AheadReader>& reader);

  // Runs `freeze` while no reader draws and all have handed back. A reader that takes more than
  // two seconds, in a resolver of external rows for instance, is left out, with a warning.
  void pause_for(const std::function<void()>& freeze);

 private:
  std::vector<std::shared_ptr<AheadReader>> begin_pause();
  void end_pause();
  std::vector<std::shared_ptr<AheadReader>> alive() REVERIE_REQUIRES(mutex_);

  Mutex mutex_;
  std::vector<std::weak_ptr<AheadReader>> readers_ REVERIE_GUARDED_BY(mutex_);
  std::size_t pauses_ REVERIE_GUARDED_BY(mutex_) = 0;
};

}  // namespace reverie
