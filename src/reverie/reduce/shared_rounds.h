// All-reduces through the shared memory of a group's members on one host (share_segment.h).
//
//     member 0   brings a0 b0        reduces part a over all    takes b
//     member 1   brings a1 b1        reduces part b over all    takes a
//
// A member puts its array into its window, and announces it in its table. Once all have, each
// reduces the parts that it is the root of (part i on member i mod P) over all windows, into its
// own; then each takes the parts of the others. Small arrays every member reduces itself, which
// saves the second wait. Parts are combined in the order of their tree, as with calls: the same
// arrays give the same bytes either way, in whatever order members arrive.
//
// A thread that waits for a round does the work, and polls the other members itself; a thread of
// the group does it while no thread waits. Nothing is sent. The member that arrives last wakes all
// others at once.
//
// A reduction over several hosts has two such steps on each: kToFirst gives the first member the
// combination of all arrays of the host, and kFromFirst gives its array to all (group_core.h).
//
// A member's array stays in its window until the others have taken what they need. A member that
// leaves a round withdraws its entry before it reuses the memory, and a reader checks all entries
// again after reading: so a result never contains data of another round.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/mutex.h"
#include "reverie/base/status.h"
#include "reverie/reduce/reduce_layout.h"
#include "reverie/reduce/share_segment.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

// What a round in shared memory does. The numbers of members are those of the segment.
enum class SharedStep : std::uint8_t {
  kAll,        // all members get the reduction of all arrays
  kToFirst,    // member 0 gets it; a mean is left a sum
  kFromFirst,  // all members get the array of member 0
};

// Thread-safe. For one membership.
class SharedRounds {
 public:
  struct Start {
    std::uint64_t id = 0;   // names the round in reports
    std::uint64_t key = 0;  // the same on all members, unique per round
    std::shared_ptr<const ReduceLayout> layout;
    // Gets the result; after kToFirst its contents are undefined on other members.
    std::shared_ptr<Buffer> buffer;
    // Where the array was loaded, by allocate(); else it is in `buffer`.
    std::optional<std::uint64_t> offset;
    bool is_awaited = false;  // a thread is about to wait for it
    SharedStep step = SharedStep::kAll;
  };
  struct Finished {
    std::uint64_t id = 0;
    Status status;
    // A member whose array does not match `layout`.
    std::optional<std::size_t> differs_with;
  };

  // `finished` is called on any thread that does work here, under no lock of this object.
  SharedRounds(std::shared_ptr<ShareSegment> segment,
               std::function<void(std::vector<Finished>)> finished);

  std::size_t window_bytes() const { return segment_->window_bytes(); }
  // Allocates room in this member's window; none if it is used up.
  std::optional<std::uint64_t> allocate(std::size_t size_bytes);
  void free(std::uint64_t offset);
  std::byte* at(std::uint64_t offset) { return segment_->window().data() + offset; }

  void begin(Start start);
  // The round has ended otherwise.
  void forget(std::uint64_t id);

  // Does the available work. False if there was none.
  bool step() { return step_beside(0); }
  // Works until `is_done()`, or `until`.
  void drive(const std::function<bool()>& is_done, TimePoint until);
  // Works while no thread drives, until close(). Runs on a separate thread.
  void serve();
  void close();

 private:
  struct SharedRound;
  using SharedRoundPtr = std::shared_ptr<SharedRound>;

  // `own_drivers` is 1 on a thread that drives, else 0.
  bool step_beside(int own_drivers);
  void work(const std::function<bool()>& is_over, TimePoint until, int own_drivers);
  bool wait_for_work();
  bool advance(SharedRound& one, std::optional<Finished>& finished);
  bool bring(SharedRound& one, std::optional<Finished>& finished);
  bool put_array(SharedRound& one, std::optional<Finished>& finished);
  void reduce(SharedRound& one);
  bool find_others(SharedRound& one, std::optional<Finished>& finished);
  void reduce_part(SharedRound& one, std::size_t part, std::byte* to_window);
  const std::byte* reduce_block(const SharedRound& one, std::size_t member, std::size_t tree,
                                std::size_t begin, std::size_t end, std::size_t level,
                                std::byte* scratch) const;
  bool take_parts(SharedRound& one);
  bool is_whole(const SharedRound& one) const;
  std::optional<std::uint64_t> allocate_locked(std::size_t size_bytes) REVERIE_REQUIRES(mutex_);
  void retire(const SharedRoundPtr& one) REVERIE_REQUIRES(mutex_);
  void sweep() REVERIE_REQUIRES(mutex_);
  std::size_t owner(std::size_t part) const { return part % segment_->member_count(); }

  const std::shared_ptr<ShareSegment> segment_;
  const std::function<void(std::vector<Finished>)> finished_;
  const bool spins_;
  Mutex mutex_;
  CondVar changed_;
  std::vector<SharedRoundPtr> active_ REVERIE_GUARDED_BY(mutex_);
  std::vector<SharedRoundPtr> lingering_
      REVERIE_GUARDED_BY(mutex_);  // done here, not yet everywhere
  std::map<std::uint64_t, std::size_t> used_ REVERIE_GUARDED_BY(mutex_);  // offsets and sizes
  std::size_t touched_bytes_ REVERIE_GUARDED_BY(mutex_) = 0;
  bool is_deep_ REVERIE_GUARDED_BY(mutex_) = false;  // serve() will not poll soon by itself
  std::atomic<std::size_t> active_count_{0};
  std::atomic<int> drivers_{0};
  std::atomic<bool> is_closed_{false};
};

}  // namespace reverie
