// Passes the library's log lines to Python's `logging`, under the name "reverie".
//
// A line of native code is queued, and a thread of the log's own passes it on. Where it was logged
// nothing waits for the interpreter's lock and no Python code runs: there may be a lock of the
// library in hand that the interpreter's holder waits for.
#pragma once

#include <string_view>

#include "reverie/base/log.h"
#include "reverie/base/log_queue.h"

namespace reverie::python {

// Makes the process log so. Called once, when the module is imported.
void log_to_python();

// Queues a line. Any thread, with or without locks.
void add_log_line(LogQueue::Level level, std::string_view text);

// Passes on what waits, when the program ends. Requires the interpreter's lock and no lock of the
// library.
void pass_log_lines();

// Logs one line at once. Requires the interpreter's lock and no lock of the library.
void log_here(LogQueue::Level level, std::string_view text);

}  // namespace reverie::python
