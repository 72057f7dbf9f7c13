#include "python/bindings/log_lines.h"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <limits>
#include <system_error>
#include <thread>

#include <nanobind/nanobind.h>

#include "python/bindings/convert.h"
#include "python/bindings/gil.h"
#include "reverie/base/fork.h"

namespace reverie::python {
namespace {

namespace nb = nanobind;

LogQueue::Level queue_level(LogLevel level) {
  return level == LogLevel::kInfo      ? LogQueue::kInfo
         : level == LogLevel::kWarning ? LogQueue::kWarning
                                       : LogQueue::kError;
}

void run_log_thread() {
  LogQueue& lines = LogQueue::here();
  while (true) {
    lines.wait();
    const GilAnywhere held;
    if (!held) return;  // the program ends
    pass_log_lines();
  }
}

// Starts the log's thread of this process, unless it runs. Without one, for want of threads, the
// next line tries again.
void start_log_thread() {
  constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();
  static std::atomic<std::uint32_t> started_in{kNone};
  const std::uint32_t generation = fork_generation();
  if (started_in.exchange(generation) == generation) return;
  // Signals belong to the threads of the program: a handler of theirs never runs on ours.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread(run_log_thread).detach();
  } catch (const std::system_error&) {
    started_in.store(kNone);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace

void add_log_line(LogQueue::Level level, std::string_view text) {
  if (program_has_ended()) {
    // The log's thread has ended, and no other thread of Python runs.
    if (holds_gil()) log_here(level, text);
    return;
  }
  LogQueue::here().add(level, text);
  start_log_thread();
}

void log_to_python() {
  set_log_sink(
      [](LogLevel level, std::string_view text) { add_log_line(queue_level(level), text); });
}

void pass_log_lines() {
  for (const LogQueue::Line& line : LogQueue::here().take()) log_here(line.level, line.text);
}

void log_here(LogQueue::Level level, std::string_view text) {
  bool is_interrupted = false;
  {
    const nb::error_scope pending;
    try {
      nb::module_::import_("logging").attr("getLogger")("reverie").attr("log")(
          static_cast<int>(level), "%s", text_object(text));
    } catch (nb::python_error& error) {
      // A failed line must not end the call, but Ctrl-C does.
      is_interrupted = error.matches(PyExc_KeyboardInterrupt);
      if (!is_interrupted) error.discard_as_unraisable("reverie log");
    }
  }
  if (is_interrupted && PyErr_Occurred() == nullptr) PyErr_SetNone(PyExc_KeyboardInterrupt);
}

}  // namespace reverie::python
