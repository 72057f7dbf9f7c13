// Tested in group_test.cc.
#include "reverie/group/group.h"
#include "reverie/group/group_share.h"

namespace reverie {

GroupRound::GroupRound() = default;
GroupRound::~GroupRound() = default;

bool GroupRound::is_done() const {
  MutexLock lock(mutex_);
  return is_done_;
}

Status GroupRound::wait(TimePoint deadline) const {
  bool drives = true;
  while (true) {
    std::shared_ptr<SharedRounds> share;
    {
      MutexLock lock(mutex_);
      while (!is_done_ && !(drives && share_)) {
        const bool is_late = !Clock::system().wait_until(changed_, mutex_, deadline);
        if (is_late && !is_done_) {
          return deadline_exceeded(
              "the round has no result yet; it continues, ask again or cancel it");
        }
      }
      if (is_done_) return status_;
      share = share_;
    }
    share->drive([this] { return is_done(); }, deadline);
    drives = false;  // it is done or late, or the membership has ended and its end follows
  }
}

void GroupRound::cancel() {
  cancel_();
}

std::vector<std::string> GroupRound::lost() const {
  MutexLock lock(mutex_);
  return lost_;
}

std::map<std::size_t, Payload> GroupRound::values() const {
  MutexLock lock(mutex_);
  return values_;
}

}  // namespace reverie
