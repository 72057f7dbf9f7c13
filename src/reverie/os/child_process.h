// Programs that this process starts, watches and ends.
#pragma once

#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/status.h"

namespace reverie {

// One child. Move-only; destroying it kills and collects a child that still runs, except in a
// forked copy of this process, to which the child does not belong. Not thread-safe.
class ChildProcess {
 public:
  struct Options {
    // The program, looked up in PATH unless it has a slash, followed by its arguments.
    std::vector<std::string> command;
    // Descriptors that the child inherits, as 3, 4, ... in this order. Besides these it has only 0
    // (which is /dev/null), 1 and 2.
    std::vector<int> descriptors;
  };

  // Starts the program in a fresh process image, without this process's memory or locks. SIGINT is
  // blocked in it, so that a Ctrl-C meant for the parent does not end it before it has chosen how
  // to treat SIGINT. RESOURCE_EXHAUSTED or INVALID_ARGUMENT if it cannot be started.
  static Result<ChildProcess> start(const Options& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  int pid() const { return pid_; }
  // Whether it has ended, in whatever way. Never waits.
  bool has_ended();
  // Waits for its end; false if `at_most` passes first.
  bool wait(Duration at_most);
  // Ends it by SIGKILL and collects it. Does nothing if it has ended.
  void kill();
  // How it ended: "was killed by signal 9 (Killed)", "exited with status 3". Requires has_ended().
  const std::string& end_text() const { return end_text_; }

 private:
  ChildProcess(int pid, int pid_fd) : pid_(pid), pid_fd_(pid_fd) {}
  void note_end(int code, int status);

  int pid_ = -1;
  int pid_fd_ = -1;  // readable once it ends; -1 if unsupported
  bool has_ended_ = false;
  std::string end_text_;
  ForkGuard fork_guard_;
};

// Ends this process at once when the process `parent_pid`, its parent, is gone, however that ended
// and whatever this process is doing then. A child calls it first. FAILED_PRECONDITION if the
// parent is gone already.
Status exit_with_parent(int parent_pid);

// From now on this process ignores Ctrl-C; its parent decides.
void ignore_interrupts();

}  // namespace reverie
