// Helpers: threads of the process that share work that comes in parts.
//
//     run_in_parts(8, [&](std::size_t part) { decode(parts[part]); });
//
// The caller works too, and does all of it alone where cores are few or another call has the
// helpers: no call waits for them to be free. They are started with the first work and sleep while
// there is none.
#pragma once

#include <cstddef>
#include <functional>

namespace reverie {

// Calls work(part) once for each part below `part_count`, in no order, and returns when all is
// done. Thread-safe. `work` is called on several threads at once, and must not call this again.
void run_in_parts(std::size_t part_count, const std::function<void(std::size_t part)>& work);

}  // namespace reverie
