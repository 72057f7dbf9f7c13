// CallGatherers: the gatherers of all functions of a peer, for its I/O thread.
//
// They are referred to weakly: a gatherer ends with its function, or with the program's queue.
#pragma once

#include <memory>
#include <set>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/calls/call_gatherer.h"

namespace reverie {

// Thread-safe.
class CallGatherers {
 public:
  void add(const std::shared_ptr<CallGatherer>& gatherer);
  // As CallGatherer::withdraw(), for all of them.
  void withdraw(std::set<InboundId>& requests);
  // Closes all.
  void close();

 private:
  std::vector<std::shared_ptr<CallGatherer>> all();

  Mutex mutex_;
  std::vector<std::weak_ptr<CallGatherer>> gatherers_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
