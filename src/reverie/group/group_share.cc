// Tested in group_test.cc.
#include "reverie/group/group_share.h"

#include <utility>

#include "reverie/base/fork.h"
#include "reverie/base/start_thread.h"

namespace reverie {
namespace {

constexpr std::size_t kPageBytes = 4096;

}  // namespace

GroupShare::GroupShare(std::size_t bytes_max, Finished finished)
    : bytes_max_((bytes_max + kPageBytes - 1) / kPageBytes * kPageBytes),
      door_(std::make_shared<Door>()) {
  MutexLock lock(door_->mutex);
  door_->finished = std::move(finished);
}

GroupShare::~GroupShare() {
  // Only in a forked child, which does not have this thread: there is nothing to join.
  if (thread_.joinable()) leave_to_parent(std::move(thread_));
}

std::optional<std::size_t> GroupShare::make(std::uint64_t membership, std::size_t member_count,
                                            ShareOffer& offer) {
  const std::size_t window_bytes =
      bytes_max_ > 0 ? bytes_max_ : ShareSegment::window_bytes_for(member_count);
  auto segment = ShareSegment::make(member_count, window_bytes);
  if (segment.ok()) offer = (*segment)->offer();
  return use(membership, std::move(segment));
}

std::optional<std::size_t> GroupShare::open(std::uint64_t membership, std::size_t member,
                                            std::size_t member_count, const ShareOffer& offer) {
  return use(membership, ShareSegment::open(offer, member, member_count));
}

GroupCore::ShareSource GroupShare::source(std::string host) {
  return {
      std::move(host),
      [this](std::uint64_t membership, std::size_t member_count, ShareOffer& offer) {
        return make(membership, member_count, offer);
      },
      [this](std::uint64_t membership, std::size_t member, std::size_t member_count,
             const ShareOffer& offer) { return open(membership, member, member_count, offer); }};
}

std::optional<std::size_t> GroupShare::use(std::uint64_t membership,
                                           Result<std::shared_ptr<ShareSegment>> segment) {
  if (!segment.ok()) return std::nullopt;
  MutexLock lock(mutex_);
  if (is_closing_) return std::nullopt;
  if (!thread_.joinable()) {
    Result<std::thread> started = start_thread("a group", [this] { serve(); });
    if (!started.ok()) return std::nullopt;  // its members use their connections
    thread_ = std::move(started).value();
  }
  retire();
  rounds_ = std::make_shared<SharedRounds>(
      std::move(*segment), [door = door_](std::vector<SharedRounds::Finished> ends) {
        Finished finished;
        {
          MutexLock entry(door->mutex);
          if (!door->finished) return;
          finished = door->finished;
          ++door->inside;
        }
        finished(std::move(ends));
        MutexLock exit(door->mutex);
        --door->inside;
        door->changed.notify_all();
      });
  membership_ = membership;
  changed_.notify_all();
  return rounds_->window_bytes();
}

void GroupShare::retire() {
  if (rounds_) retired_.push_back(std::exchange(rounds_, nullptr));
}

void GroupShare::enter(std::uint64_t membership) {
  MutexLock lock(mutex_);
  if (membership_ != membership) retire();
}

std::shared_ptr<SharedRounds> GroupShare::rounds() const {
  MutexLock lock(mutex_);
  return rounds_;
}

std::vector<std::shared_ptr<SharedRounds>> GroupShare::take_retired() {
  MutexLock lock(mutex_);
  return std::exchange(retired_, {});
}

// Does the work of rounds that no thread waits for.
void GroupShare::serve() {
  while (true) {
    std::shared_ptr<SharedRounds> rounds;
    {
      MutexLock lock(mutex_);
      while (!is_closing_ && !rounds_) changed_.wait(mutex_);
      if (is_closing_) return;
      rounds = rounds_;
    }
    rounds->serve();
  }
}

void GroupShare::close() {
  std::thread thread;
  std::vector<std::shared_ptr<SharedRounds>> over;
  {
    MutexLock lock(mutex_);
    is_closing_ = true;
    retire();
    over.swap(retired_);
    thread.swap(thread_);
    changed_.notify_all();
  }
  for (const auto& rounds : over) rounds->close();
  if (thread.joinable()) thread.join();
  MutexLock lock(door_->mutex);
  door_->finished = nullptr;
  while (door_->inside > 0) door_->changed.wait(door_->mutex);
}

}  // namespace reverie
