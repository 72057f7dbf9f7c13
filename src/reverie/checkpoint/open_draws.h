// OpenDraws: draws whose reader has not said yet that it has them, of one table.
//
// A crash undoes them: an item that was on its way to its reader is drawn again. So a journal says
// once more in each file that a checkpoint begins what is open then, as the checkpoint does not
// hold an item that left its table with this draw.
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
  // Draws that are not there are ignored.
  void remove(DrawId draw);
  void clear() {
    draws_.clear();
    numbers_.clear();
  }

  bool empty() const { return draws_.empty(); }
  std::size_t size() const { return draws_.size(); }
  // All of them, in the order in which they were drawn. Valid until the next change of this.
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
