// Checkpoints that tell which thread destroys their store.
//
//     std::promise<std::thread::id> ended;
//     store->set_checkpoints(std::make_unique<EndingCheckpoints>(ended));
#pragma once

#include <future>
#include <thread>
#include <vector>

#include "reverie/replay/local_service.h"

namespace reverie::testing {

class EndingCheckpoints final : public StoreCheckpoints {
 public:
  // `ended` outlives the store, which is destroyed once.
  explicit EndingCheckpoints(std::promise<std::thread::id>& ended) : ended_(ended) {}
  ~EndingCheckpoints() override { ended_.set_value(std::this_thread::get_id()); }

  RequestId checkpoint(std::vector<std::byte>, Done) override { return 0; }
  void cancel(RequestId) override {}
  void stop() override {}
  StoreOrigin origin() const override { return {}; }
  void abandon() override {}
  bool is_own_thread() const override { return false; }

 private:
  std::promise<std::thread::id>& ended_;
};

}  // namespace reverie::testing
