// Tested in group_test.cc.
#include <utility>

#include "reverie/group/group.h"
#include "reverie/group/group_share.h"
#include "reverie/group/reduce_round.h"

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

SumSpace::SumSpace(std::shared_ptr<const ReduceLayout> layout, std::shared_ptr<Buffer> buffer,
                   std::shared_ptr<SharedSlot> slot)
    : layout_(std::move(layout)), buffer_(std::move(buffer)), slot_(std::move(slot)) {
  std::byte* const at = slot_ ? slot_->rounds->at(slot_->offset) : buffer_->data();
  bytes_ = {at, layout_->size_bytes()};
}

std::shared_ptr<Round> Group::round_in(const SumSpace& space, GroupRound& round, bool is_awaited) {
  round.is_awaited_ = is_awaited;
  round.layout_ = space.layout_;
  round.buffer_ = space.buffer_;
  round.slot_ = space.slot_;
  return std::make_shared<ReduceRound>(round.layout_, round.buffer_, round.member_index_,
                                       round.members_.size());
}

}  // namespace reverie
