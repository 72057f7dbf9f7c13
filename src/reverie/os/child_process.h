// Programs that this process starts, watches and ends.
#pragma once

#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/fork.h"
#include "reverie/base/status.h"

namespace reverie {

// One child. Move-only; a living child is killed and collected with it, except in a forked copy of
// this process, which has no say over it. Not thread-safe.
class ChildProcess {
 public:
  struct Options {
    // The program, looked up in PATH unless it has a slash, and its arguments behind it.
    std::vector<std::string> command;
    // Descriptors that it gets, as 3, 4, ... in this order. It gets none else but 0 (which is
    // /dev/null), 1 and 2.
    std::vector<int> descriptors;
  };

  // Starts it, in a fresh image of the program: nothing of this process' memory or locks is there.
  // SIGINT is blocked in it, so that a Ctrl-C meant for the parent does not end it before it has
  // said what to do about them. RESOURCE_EXHAUSTED or INVALID_ARGUMENT when it cannot be started.
  static Result<ChildProcess> start(const Options& options);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();

  int pid() const { return pid_; }
  // Whether it has ended, however. Never waits.
  bool has_ended();
  // Waits for its end; false when the time is up first.
  bool wait(Duration at_most);
  // Ends it by SIGKILL and collects it. Does nothing if it has ended.
  void kill();
  // How it ended: "was killed by signal 9 (Killed)", "exited with status 3". Requires has_ended().
  const std::string& end_text() const { return end_text_; }

 private:
  ChildProcess(int pid, int pid_fd) : pid_(pid), pid_fd_(pid_fd) {}
  void note_end(int code, int status);

  int pid_ = -1;
  int pid_fd_ = -1;  // becomes readable when it ends; -1 where the kernel has none
  bool has_ended_ = false;
  std::string end_text_;
  ForkGuard fork_guard_;
};

// Ends this process at once when the process `parent_pid`, its parent, is gone, however that ended
// and whatever this process is doing then. Call it first thing in a child.
// FAILED_PRECONDITION if the parent is gone already.
Status exit_with_parent(int parent_pid);

// From now on this process ignores Ctrl-C; its parent decides.
void ignore_interrupts();

}  // namespace reverie
