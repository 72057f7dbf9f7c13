// The shared memory of a group's current membership, and the thread that works in it.
//
//     make, open   -->  [ rounds of this membership ]  <-- threads that wait for a round
//     enter(next)       goes to the retired ones            its own thread, while none waits
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/group/group_core.h"
#include "reverie/reduce/share_segment.h"
#include "reverie/reduce/shared_rounds.h"

namespace reverie {

// Space in a window, until a round is begun with its contents.
struct SharedSlot {
  SharedSlot(std::shared_ptr<SharedRounds> owner, std::uint64_t at)
      : rounds(std::move(owner)), offset(at) {}
  ~SharedSlot() {
    if (rounds) rounds->free(offset);
  }
  SharedSlot(const SharedSlot&) = delete;
  SharedSlot& operator=(const SharedSlot&) = delete;

  std::shared_ptr<SharedRounds> rounds;
  const std::uint64_t offset;
};

// Thread-safe, for an owner that makes, opens and enters under one lock of its own.
class GroupShare {
 public:
  using Finished = std::function<void(std::vector<SharedRounds::Finished>)>;
  // `bytes_max`: the size of a window, or 0 to choose by the host's memory. `finished` is called on
  // the working threads, until close() has returned.
  GroupShare(std::size_t bytes_max, Finished finished);
  ~GroupShare();
  GroupShare(const GroupShare&) = delete;
  GroupShare& operator=(const GroupShare&) = delete;

  // As GroupCore::ShareSource.
  std::optional<std::size_t> make(std::uint64_t membership, std::size_t member_count,
                                  ShareOffer& offer);
  std::optional<std::size_t> open(std::uint64_t membership, std::size_t member,
                                  std::size_t member_count, const ShareOffer& offer);
  // Both of them. It must outlive the source.
  GroupCore::ShareSource source(std::string host);
  // Retires the rounds of other memberships.
  void enter(std::uint64_t membership);
  // Null while there is no shared memory.
  std::shared_ptr<SharedRounds> rounds() const;
  // Retired rounds that are not closed yet: the caller closes them, under no lock.
  std::vector<std::shared_ptr<SharedRounds>> take_retired();
  // Waits for the thread; must not run on it.
  void close();

 private:
  std::optional<std::size_t> use(std::uint64_t membership,
                                 Result<std::shared_ptr<ShareSegment>> segment);
  void retire() REVERIE_REQUIRES(mutex_);
  void serve();

  const std::size_t bytes_max_;
  // Outlives this, in rounds that a thread still holds.
  struct Door {
    Mutex mutex;
    CondVar changed;
    Finished finished REVERIE_GUARDED_BY(mutex);  // null once it is closed
    int inside REVERIE_GUARDED_BY(mutex) = 0;
  };
  const std::shared_ptr<Door> door_;
  mutable Mutex mutex_;
  CondVar changed_;
  std::shared_ptr<SharedRounds> rounds_ REVERIE_GUARDED_BY(mutex_);
  std::uint64_t membership_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::vector<std::shared_ptr<SharedRounds>> retired_ REVERIE_GUARDED_BY(mutex_);
  std::thread thread_ REVERIE_GUARDED_BY(mutex_);
  bool is_closing_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
