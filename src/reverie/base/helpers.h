// Helpers: threads of the process that take on parts of one piece of work.
//
//     run_in_parts(8, [&](std::size_t part) { decode(parts[part]); });
//
// The caller works too, and does everything itself where cores are few or another call is using the
// helpers: no call waits for them. They start with the first work and sleep while there is nothing
// to do.
#pragma once

#include <cstddef>
#include <functional>

namespace reverie {

// Calls work(part) once for each part below `part_count`, in no order, and returns when all are
// done. Thread-safe. `work` is called on several threads at once, and must not call this again.
void run_in_parts(std::size_t part_count, const std::function<void(std::size_t part)>& work);

}  // namespace reverie
