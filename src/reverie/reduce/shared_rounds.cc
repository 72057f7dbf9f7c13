// Tested in src/reverie/group/share_test.cc.
#include "reverie/reduce/shared_rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "reverie/base/cores.h"
#include "reverie/base/spin.h"
#include "reverie/reduce/streamed_copy.h"
#include "reverie/reduce/topology.h"

namespace reverie {
namespace {

constexpr std::size_t kSlotAlignment = 256;
// Bytes that are reduced at a time: they stay in a core's cache, on all levels of a tree.
constexpr std::size_t kBlockBytes = std::size_t{16} << 10;
constexpr std::size_t kLevels = 7;  // of a tree of 64 members
// Each member reduces the complete array itself if it reads at most this.
constexpr std::size_t kDirectBytesMax = std::size_t{512} << 10;
// The thread that begins a round which no thread waits for works on at most so many bytes of it.
constexpr std::size_t kBegunBytesMax = std::size_t{2} << 20;
constexpr Duration kSleepMax = std::chrono::milliseconds(50);
// How long the group's thread leaves a round to a thread that is about to wait for it.
constexpr Duration kNap = std::chrono::milliseconds(2);
constexpr int kSleepsMax = 25;
constexpr Duration kIdle = std::chrono::seconds(1);
constexpr std::size_t kTouchedKept = std::size_t{1} << 20;  // bytes of an idle window

constexpr std::size_t slot_bytes(std::size_t size_bytes) {
  return (std::max<std::size_t>(size_bytes, 1) + kSlotAlignment - 1) / kSlotAlignment *
         kSlotAlignment;
}

}  // namespace

struct SharedRounds::SharedRound {
  enum class Phase { kLoad, kGather, kReduce, kTake, kFinished, kStuck };
  struct Other {
    std::optional<std::size_t> place;
    std::uint64_t offset = 0;
    bool is_taken = false;     // its parts, by this member
    bool is_finished = false;  // it needs nothing more of this member
  };

  explicit SharedRound(Start from) : start(std::move(from)) {}

  const Start start;
  Phase phase = Phase::kLoad;
  bool is_small = false;
  std::optional<std::uint64_t> offset;  // in the own window
  std::optional<std::size_t> place;     // in the own table
  std::vector<Other> others;            // by member, this one among them
  std::size_t missing = 0;
  std::atomic<bool> is_busy{false};
  std::atomic<bool> is_forgotten{false};
};

SharedRounds::SharedRounds(std::shared_ptr<ShareSegment> segment,
                           std::function<void(std::vector<Finished>)> finished)
    : segment_(std::move(segment)),
      finished_(std::move(finished)),
      spins_(segment_->member_count() <= available_cores()) {}

// --- The own window.

std::optional<std::uint64_t> SharedRounds::allocate_locked(std::size_t size_bytes) {
  sweep();
  const std::size_t size = slot_bytes(size_bytes);
  std::uint64_t at = 0;
  for (const auto& [offset, used] : used_) {
    if (offset - at >= size) break;
    at = offset + used;
  }
  if (size > segment_->window_bytes() - at) return std::nullopt;
  used_.emplace(at, size);
  touched_bytes_ = std::max<std::size_t>(touched_bytes_, at + size);
  return at;
}

std::optional<std::uint64_t> SharedRounds::allocate(std::size_t size_bytes) {
  MutexLock lock(mutex_);
  return allocate_locked(size_bytes);
}

void SharedRounds::free(std::uint64_t offset) {
  MutexLock lock(mutex_);
  used_.erase(offset);
}

void SharedRounds::retire(const SharedRoundPtr& one) {
  if (one->place) segment_->withdraw(*one->place);
  if (one->offset) used_.erase(*one->offset);
  one->place.reset();
  one->offset.reset();
}

// Frees arrays that all other members have taken.
void SharedRounds::sweep() {
  for (std::size_t i = 0; i < lingering_.size();) {
    SharedRound& one = *lingering_[i];
    bool is_over = true;
    for (std::size_t m = 0; m < one.others.size(); ++m) {
      SharedRound::Other& other = one.others[m];
      if (other.is_finished || m == segment_->member()) continue;
      const auto state = segment_->state(m, *other.place, one.start.key);
      other.is_finished = !state || *state == ShareState::kTaken;
      is_over = is_over && other.is_finished;
    }
    if (!is_over) {
      ++i;
      continue;
    }
    retire(lingering_[i]);
    lingering_.erase(lingering_.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

// --- Rounds.

void SharedRounds::begin(Start start) {
  const bool is_awaited = start.is_awaited;
  auto one = std::make_shared<SharedRound>(std::move(start));
  one->offset = one->start.offset;
  one->others.resize(segment_->member_count());
  one->missing = segment_->member_count();
  one->is_small = one->start.layout->size_bytes() * segment_->member_count() <= kDirectBytesMax;
  const bool is_short = one->start.layout->size_bytes() <= kBegunBytesMax;
  bool is_deep = false;
  {
    MutexLock lock(mutex_);
    active_.push_back(one);
    active_count_.store(active_.size());
    is_deep = is_deep_;
  }
  if (is_awaited && is_deep) changed_.notify_all();
  // Work on arrays in the buffer is left to a waiting thread, which may sleep, or to the group's.
  // So is long work that no thread is about to wait for.
  if (one->start.offset && (is_awaited || is_short)) {
    (void)step();
  } else if (drivers_.load() > 0) {
    segment_->ring();
  }
  if (!is_awaited && active_count_.load() > 0) changed_.notify_all();
}

void SharedRounds::forget(std::uint64_t id) {
  {
    MutexLock lock(mutex_);
    const auto place =
        std::find_if(active_.begin(), active_.end(),
                     [id](const SharedRoundPtr& one) { return one->start.id == id; });
    if (place == active_.end()) return;
    const SharedRoundPtr one = *place;
    one->is_forgotten.store(true);
    if (!one->is_busy.exchange(true)) {
      // No thread works on it any more; otherwise the working thread retires it.
      retire(one);
      active_.erase(place);
      active_count_.store(active_.size());
    }
  }
  segment_->ring();  // for the thread that waits for it
}

bool SharedRounds::step_beside(int own_drivers) {
  std::vector<SharedRoundPtr> rounds;
  {
    MutexLock lock(mutex_);
    rounds = active_;
  }
  bool has_moved = false;
  std::vector<Finished> finished;
  for (const SharedRoundPtr& one : rounds) {
    if (one->is_busy.exchange(true)) continue;
    std::optional<Finished> end;
    if (!one->is_forgotten.load()) has_moved = advance(*one, end) || has_moved;
    MutexLock lock(mutex_);
    one->is_busy.store(false);
    const bool is_good = end && end->status.ok() && !end->differs_with;
    if (end) finished.push_back(std::move(*end));
    if (!is_good && !one->is_forgotten.load()) continue;
    const auto place = std::find(active_.begin(), active_.end(), one);
    if (place == active_.end()) continue;
    if (is_good) {
      lingering_.push_back(one);
    } else {
      retire(one);
    }
    active_.erase(place);
    active_count_.store(active_.size());
  }
  if (finished.empty()) return has_moved;
  finished_(std::move(finished));
  // Another thread may sleep until one of these rounds is over.
  if (drivers_.load() > own_drivers) segment_->ring();
  return has_moved;
}

bool SharedRounds::advance(SharedRound& one, std::optional<Finished>& finished) {
  using Phase = SharedRound::Phase;
  bool has_moved = false;
  if (one.phase == Phase::kLoad) {
    if (!bring(one, finished)) return false;
    has_moved = true;
  }
  if (one.phase == Phase::kGather) {
    const bool is_last = has_moved;  // it may be: no member has seen this one before
    has_moved = find_others(one, finished) || has_moved;
    if (one.missing > 0 || finished) return has_moved;
    if (is_last) segment_->ring();
    one.phase = Phase::kReduce;
  }
  if (one.phase == Phase::kReduce) {
    has_moved = true;
    if (one.start.step != SharedStep::kFromFirst) reduce(one);
    if (one.is_forgotten.load(std::memory_order_relaxed)) return true;
    one.phase = Phase::kTake;
  }
  if (one.phase == Phase::kTake) {
    has_moved = take_parts(one) || has_moved;
    const bool is_all = std::all_of(one.others.begin(), one.others.end(),
                                    [](const auto& other) { return other.is_taken; });
    if (!is_all || one.is_forgotten.load()) return has_moved;
    if (!is_whole(one)) {
      one.phase = Phase::kStuck;  // a member has left: the notification follows
      return has_moved;
    }
    segment_->set_state(*one.place, ShareState::kTaken);
    one.phase = Phase::kFinished;
    finished = Finished{one.start.id, {}, {}};
  }
  return has_moved;
}

// The parts of this member; all parts of a small array. Then it needs those of the others, or none.
void SharedRounds::reduce(SharedRound& one) {
  const bool is_first = segment_->member() == 0;
  const bool is_to_first = one.start.step == SharedStep::kToFirst;
  if (!one.is_small || is_first || !is_to_first) {
    for (std::size_t part = 0; part < one.start.layout->part_count(); ++part) {
      if (!one.is_small && owner(part) != segment_->member()) continue;
      if (one.is_forgotten.load(std::memory_order_relaxed)) return;
      reduce_part(one, part, one.is_small ? nullptr : at(*one.offset));
    }
  }
  one.others[segment_->member()].is_taken = true;
  if (one.is_small || (is_to_first && !is_first)) {
    for (SharedRound::Other& other : one.others) other.is_taken = true;
  }
  if (one.is_small) return;
  segment_->set_state(*one.place, ShareState::kReduced);
  bool is_last = true;
  for (std::size_t m = 0; m < one.others.size() && is_last; ++m) {
    const auto state = segment_->state(m, *one.others[m].place, one.start.key);
    is_last = state && *state >= ShareState::kReduced;
  }
  if (is_last) segment_->ring();
}

// Puts the own array into the window. False if it is not there.
bool SharedRounds::put_array(SharedRound& one, std::optional<Finished>& finished) {
  const std::size_t size = one.start.layout->size_bytes();
  if (!one.offset) {
    MutexLock lock(mutex_);
    one.offset = allocate_locked(size);
    if (!one.offset && !lingering_.empty()) return false;  // which end soon
  }
  if (!one.offset) {
    one.phase = SharedRound::Phase::kStuck;
    finished = Finished{
        one.start.id,
        resource_exhausted("an array of {} bytes has no room beside those of other rounds in the "
                           "{} bytes of shared memory that a member has; wait for their results",
                           size, segment_->window_bytes()),
        {}};
    return false;
  }
  if (!one.start.offset) {
    copy_piece(at(*one.offset), one.start.buffer->data(), size, size);
  }
  return true;
}

// Brings the own array, unless only that of the first member is wanted, and announces it.
bool SharedRounds::bring(SharedRound& one, std::optional<Finished>& finished) {
  const bool is_reader = one.start.step == SharedStep::kFromFirst && segment_->member() != 0;
  if (!is_reader && !put_array(one, finished)) return false;
  const std::size_t size = is_reader ? 0 : one.start.layout->size_bytes();
  {
    MutexLock lock(mutex_);
    one.place = segment_->publish(
        one.start.key, {one.start.layout->signature_hash(), one.offset.value_or(0), size});
  }
  if (!one.place) {
    one.phase = SharedRound::Phase::kStuck;
    finished = Finished{one.start.id,
                        resource_exhausted("too many rounds are under way, of {} that there may "
                                           "be; wait for their results",
                                           ShareSegment::kEntries),
                        {}};
    return false;
  }
  SharedRound::Other& mine = one.others[segment_->member()];
  mine.place = one.place;
  mine.offset = one.offset.value_or(0);
  --one.missing;
  one.phase = SharedRound::Phase::kGather;
  return true;
}

bool SharedRounds::find_others(SharedRound& one, std::optional<Finished>& finished) {
  bool has_moved = false;
  for (std::size_t m = 0; m < one.others.size(); ++m) {
    SharedRound::Other& other = one.others[m];
    if (other.place) continue;
    const auto place = segment_->find(m, one.start.key);
    if (!place) continue;
    const ShareEntry entry = segment_->entry(m, *place);
    const bool is_reader = one.start.step == SharedStep::kFromFirst && m != 0;
    const std::size_t size = is_reader ? 0 : one.start.layout->size_bytes();
    // A member that withdrew it meanwhile may have put another round there.
    if (!segment_->state(m, *place, one.start.key)) continue;
    if (entry.signature != one.start.layout->signature_hash()) {
      one.phase = SharedRound::Phase::kStuck;
      finished = Finished{one.start.id, {}, m};
      return true;
    }
    if (entry.size_bytes != size || entry.offset > segment_->window_bytes() ||
        size > segment_->window_bytes() - entry.offset || entry.offset % kSlotAlignment != 0) {
      one.phase = SharedRound::Phase::kStuck;
      finished = Finished{one.start.id,
                          data_loss("member {} says that its {} bytes are at {} of its shared "
                                    "memory, which is impossible",
                                    m, entry.size_bytes, entry.offset),
                          {}};
      return true;
    }
    other.place = place;
    other.offset = entry.offset;
    --one.missing;
    has_moved = true;
  }
  return has_moved;
}

// The result of the tree below `member` for these bytes: in its window, or in `scratch`.
const std::byte* SharedRounds::reduce_block(const SharedRound& one, std::size_t member,
                                            std::size_t tree, std::size_t begin, std::size_t end,
                                            std::size_t level, std::byte* scratch) const {
  const std::byte* const own = segment_->data(member, one.others[member].offset) + begin;
  const TreePlace place = place_in_tree(member, tree, segment_->member_count());
  if (place.child_count == 0) return own;
  std::byte* const into = scratch + level * kBlockBytes;
  std::memcpy(into, own, end - begin);
  for (const std::size_t child : place.children()) {
    const std::byte* const from = reduce_block(one, child, tree, begin, end, level + 1, scratch);
    one.start.layout->combine_range(begin, end, into, from);
  }
  return into;
}

void SharedRounds::reduce_part(SharedRound& one, std::size_t part, std::byte* to_window) {
  const ReduceLayout& layout = *one.start.layout;
  alignas(64) static thread_local std::array<std::byte, kLevels * kBlockBytes> scratch;
  const auto [part_begin, part_end] = layout.part_range(part);
  const auto divisor = static_cast<double>(segment_->member_count());
  for (std::size_t begin = part_begin; begin < part_end; begin += kBlockBytes) {
    const std::size_t end = std::min(begin + kBlockBytes, part_end);
    // The root has children, so the result is in the scratch memory.
    (void)reduce_block(one, owner(part), part, begin, end, 0, scratch.data());
    if (one.start.step == SharedStep::kAll) {
      layout.finish_range(begin, end, scratch.data(), divisor);
    }
    const std::size_t size = layout.size_bytes();
    copy_piece(one.start.buffer->data() + begin, scratch.data(), end - begin, size);
    if (to_window != nullptr) copy_piece(to_window + begin, scratch.data(), end - begin, size);
  }
}

bool SharedRounds::take_parts(SharedRound& one) {
  const ReduceLayout& layout = *one.start.layout;
  const auto take = [&](const SharedRound::Other& other, std::size_t m, std::size_t part) {
    const auto [begin, end] = layout.part_range(part);
    copy_piece(one.start.buffer->data() + begin, segment_->data(m, other.offset) + begin,
               end - begin, layout.size_bytes());
  };
  if (one.start.step == SharedStep::kFromFirst) {
    for (std::size_t part = 0; segment_->member() != 0 && part < layout.part_count(); ++part) {
      if (one.is_forgotten.load(std::memory_order_relaxed)) return true;
      take(one.others[0], 0, part);
    }
    for (SharedRound::Other& other : one.others) other.is_taken = true;
    return true;
  }
  bool has_moved = false;
  for (std::size_t m = 0; m < one.others.size(); ++m) {
    SharedRound::Other& other = one.others[m];
    if (other.is_taken) continue;
    const auto state = segment_->state(m, *other.place, one.start.key);
    if (!state || *state < ShareState::kReduced) continue;
    for (std::size_t part = m; part < layout.part_count(); part += one.others.size()) {
      if (one.is_forgotten.load(std::memory_order_relaxed)) return true;
      take(other, m, part);
    }
    other.is_taken = true;
    has_moved = true;
  }
  return has_moved;
}

// Whether everything that was read was still valid.
bool SharedRounds::is_whole(const SharedRound& one) const {
  for (std::size_t m = 0; m < one.others.size(); ++m) {
    if (!segment_->state(m, *one.others[m].place, one.start.key)) return false;
  }
  return true;
}

// --- Threads.

void SharedRounds::work(const std::function<bool()>& is_over, TimePoint until, int own_drivers) {
  static thread_local Spinner spinner;
  const Clock& clock = Clock::system();
  while (!is_over() && !is_closed_.load()) {
    const std::uint32_t seen = segment_->seen();
    if (step_beside(own_drivers)) continue;
    if (is_over() || is_closed_.load()) return;
    if (spins_ && spinner.look(clock, [&] { return segment_->seen() != seen; })) continue;
    const TimePoint now = clock.now();
    if (now >= until) return;
    segment_->wait(seen, std::min(until - now, kSleepMax));
  }
}

void SharedRounds::drive(const std::function<bool()>& is_done, TimePoint until) {
  drivers_.fetch_add(1);
  work(is_done, until, 1);
  drivers_.fetch_sub(1);
}

// False once it is closed.
bool SharedRounds::wait_for_work() {
  Clock& clock = Clock::system();
  MutexLock lock(mutex_);
  for (int sleeps = 0; !is_closed_.load();) {
    if (drivers_.load() == 0 && !active_.empty()) return true;
    sleeps = drivers_.load() == 0 ? sleeps + 1 : 0;
    if (sleeps <= kSleepsMax) {
      (void)clock.wait_until(changed_, mutex_, clock.now() + kNap);
      continue;
    }
    is_deep_ = true;
    if (sleeps == kSleepsMax + 1) {
      (void)clock.wait_until(changed_, mutex_, clock.now() + kIdle);
    } else {
      sweep();
      if (used_.empty() && touched_bytes_ > kTouchedKept) {
        segment_->release_window();
        touched_bytes_ = 0;
      }
      changed_.wait(mutex_);
      sleeps = 0;
    }
    is_deep_ = false;
  }
  return false;
}

void SharedRounds::serve() {
  while (wait_for_work()) {
    work([this] { return drivers_.load() > 0 || active_count_.load() == 0; }, TimePoint::max(), 0);
  }
}

void SharedRounds::close() {
  is_closed_.store(true);
  { MutexLock lock(mutex_); }
  changed_.notify_all();
  segment_->ring();
}

}  // namespace reverie
