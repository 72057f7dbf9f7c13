// FrozenContents: what the owner of frozen contents and their reader share.
//
// An owner copies a part of its contents before it changes it, and the reader, who does not hold
// the owner's lock, reads the part as it was. If there is no memory for the copy, the owner's
// change is made all the same, and the reader loses the contents: a checkpoint fails, never an
// insert.
//
// Tested in segmented_array_test.cc.
#pragma once

#include "reverie/base/mutex.h"

namespace reverie {

class FrozenContents {
 public:
  // Calls `reading`, during which the contents stay as they are. False, without the call, if the
  // owner gave them up.
  template <typename Reading>
  [[nodiscard]] bool read(const Reading& reading) const {
    MutexLock lock(mutex_);
    if (is_given_up_) return false;
    reading();
    return true;
  }
  // For the owner. Waits for a reader that is inside read().
  void give_up() {
    MutexLock lock(mutex_);
    is_given_up_ = true;
  }

 private:
  mutable Mutex mutex_;
  bool is_given_up_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
