// LinkLoops: event loops whose threads also poll the shared memory of links. One per set of I/O
// threads. A thread that waits for an answer polls the memory itself (look()), so that no other
// thread has to be woken.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <vector>

#include "reverie/net/io_threads.h"
#include "reverie/rpc/link_polls.h"

namespace reverie {

// Thread-safe.
class LinkLoops {
 public:
  // `io_threads` outlives it, and nothing else has set a watch on its loops.
  explicit LinkLoops(IoThreads& io_threads);
  // Requires that all links of these loops have ended.
  ~LinkLoops();
  LinkLoops(const LinkLoops&) = delete;
  LinkLoops& operator=(const LinkLoops&) = delete;

  IoThreads& io_threads() { return io_threads_; }
  // Requires one of the loops.
  LinkPolls& polls_of(const IoLoop& loop);

 private:
  IoThreads& io_threads_;
  std::vector<std::unique_ptr<LinkPolls>> polls_;  // one per loop
};

}  // namespace reverie
