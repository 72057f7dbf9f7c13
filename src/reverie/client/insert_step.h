// Inserts one step as an item into one or more tables: the simplest way to write.
//
// The items share one chunk, so the step is stored once. For a stream of steps use a
// TrajectoryWriter, whose items share chunks with their neighbours too.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/record/trajectory.h"
#include "reverie/service/blocking.h"
#include "reverie/service/replay_service.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

struct NamedValue {
  std::string_view name;  // path in the item's nest
  TensorView value;
};

// Where an item goes, and with which priority; none: the largest that the table has seen.
struct InsertTarget {
  std::string_view table;
  std::optional<double> priority;
};

// Keeps what similar steps have in common: a schema and a layout take several times the memory of a
// small step. Thread-safe.
class StepKinds {
 public:
  struct Kind {
    Ref<const ChunkSchema> schema;
    Ref<const Layout> layout;
  };
  // The kind of steps with these columns and this structure.
  Kind find(std::span<const NamedValue> step, std::string_view structure);

 private:
  // Beyond this the oldest is replaced: it must not grow if all steps differ.
  static constexpr std::size_t kKindsMax = 16;

  Mutex mutex_;
  std::vector<Kind> kinds_ REVERIE_GUARDED_BY(mutex_);
  std::size_t next_ REVERIE_GUARDED_BY(mutex_) = 0;  // replaced next, once there are kKindsMax
};

// Inserts into one table after another, and stops at the first error: its message says how many
// tables have the item by then. Columns get a leading axis of 1. `random` gives the keys. Steps
// inserted with the same `kinds` share what they have in common.
Status insert_step(ReplayService& service, std::span<const NamedValue> step,
                   std::string_view structure, std::span<const InsertTarget> targets,
                   TimePoint deadline, Random& random, const WaitOptions& wait,
                   StepKinds* kinds = nullptr);

}  // namespace reverie
