// Tested in tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/link_loops.h"

#include "reverie/base/check.h"

namespace reverie {

LinkLoops::LinkLoops(IoThreads& io_threads) : io_threads_(io_threads) {
  for (std::size_t i = 0; i < io_threads_.count(); ++i) {
    polls_.push_back(std::make_unique<LinkPolls>());
    IoLoop& loop = io_threads_.loop(i);
    loop.run_and_wait([&loop, polls = polls_.back().get()] {
      polls->enter();
      loop.set_watch(polls);
    });
  }
}

LinkLoops::~LinkLoops() {
  io_threads_.ending().wait();  // for clients that use these loops
  for (std::size_t i = 0; i < polls_.size(); ++i) {
    IoLoop& loop = io_threads_.loop(i);
    loop.run_and_wait([&loop] { loop.set_watch(nullptr); });
  }
}

LinkPolls& LinkLoops::polls_of(const IoLoop& loop) {
  for (std::size_t i = 0; i < polls_.size(); ++i) {
    if (&io_threads_.loop(i) == &loop) return *polls_[i];
  }
  REVERIE_CHECK(false);
  return *polls_.front();
}

}  // namespace reverie
