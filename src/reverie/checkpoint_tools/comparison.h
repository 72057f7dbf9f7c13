// Compares the tables of two checkpoints without a store: what they are, and their items.
#pragma once

#include <string>
#include <vector>

#include "reverie/os/file_system.h"

namespace reverie::checkpoint {

// One way in which two checkpoints differ, as text to show.
struct Difference {
  std::string table;
  std::string what;  // "items"; empty: only one of the checkpoints has the table
  std::string one;   // in the first checkpoint; empty: it lacks the table
  std::string other;
};

// All differences, by table: options, counts and signatures; and of the items their keys,
// priorities, times sampled and rows. Items of a keyed table are the same if their keys are, others
// if their slots are. Rows are compared by the checksums of their chunks, so `manifest` and
// `tables` are read and checked, not the chunks. An item over a chunk that got further rows
// between the checkpoints counts as one with other rows.
Result<std::vector<Difference>> compare_checkpoints(FileSystem& files, const std::string& one,
                                                    const std::string& other);

}  // namespace reverie::checkpoint
