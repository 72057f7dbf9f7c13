// Tested in group_test.cc.
#include <utility>

#include "reverie/group/gather_round.h"
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

void GroupRound::finish(GroupCore::Ended end) {
  MutexLock lock(mutex_);
  if (std::exchange(is_done_, true)) return;
  status_ = std::move(end.status);
  lost_ = std::move(end.lost);
  if (auto* const gathered = dynamic_cast<GatherRound*>(round_.get());
      gathered != nullptr && status_.ok()) {
    values_ = gathered->take_values();
  }
  changed_.notify_all();
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

void Group::begin_shared(const std::shared_ptr<SharedRounds>& share,
                         const std::shared_ptr<GroupRound>& round, const GroupCore::Shared& about) {
  if (!share) return;  // the membership has ended, and so has the round
  SharedRounds::Start start;
  start.id = about.id;
  start.key = about.key;
  start.step = about.step;
  start.layout = round->layout_;
  start.buffer = round->buffer_;
  if (round->slot_ && round->slot_->rounds == share) {
    start.offset = round->slot_->offset;
    start.is_awaited = round->is_awaited_;
    round->slot_->rounds.reset();  // the round has it now
  }
  {
    MutexLock lock(round->mutex_);
    round->share_ = share;
    round->changed_.notify_all();
  }
  share->begin(std::move(start));
  bool is_done = false;
  {
    MutexLock lock(round->mutex_);
    is_done = round->is_done_;
  }
  // The round may have failed before it was begun in shared memory.
  if (is_done) share->forget(about.id);
}

}  // namespace reverie
