// OpenDraws: draws of one table that their reader has not confirmed yet.
//
// A crash undoes them: an item that was being sent to its reader is drawn again. So the file of a
// journal that begins with a checkpoint repeats the draws that are open then, since the checkpoint
// does not contain an item that left its table with such a draw.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "reverie/record/trajectory.h"
#include "reverie/service/replay_service.h"

namespace reverie::checkpoint {

// Not thread-safe. O(log n) for each draw.
class OpenDraws {
 public:
  // Draws [begin, size) of `batch`, which is not brief. Takes a share of each chunk.
  void add(const SampleBatch& batch, std::size_t begin);
  // Unknown draws are ignored.
  void remove(DrawId draw);
  void clear() {
    draws_.clear();
    numbers_.clear();
  }

  bool empty() const { return draws_.empty(); }
  std::size_t size() const { return draws_.size(); }
  // All of them, in the order of their draws. Valid until the next change of this object.
  SampleBatch batch() const;

 private:
  struct Draw {
    SampledItem item;  // views the trajectory
    Trajectory trajectory;
  };
  using Id = std::pair<std::uint64_t, std::int32_t>;

  std::uint64_t last_number_ = 0;
  std::map<std::uint64_t, Draw> draws_;
  std::map<Id, std::uint64_t> numbers_;
};

}  // namespace reverie::checkpoint
