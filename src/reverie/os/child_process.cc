#include "reverie/os/child_process.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/start_thread.h"

namespace reverie {
namespace {

int pid_descriptor(int pid) {
#if defined(SYS_pidfd_open)
  return static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
#else
  (void)pid;
  return -1;
#endif
}

// The arguments of posix_spawn, freed with this.
struct SpawnPlan {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  SpawnPlan() {
    posix_spawn_file_actions_init(&files);
    posix_spawnattr_init(&attributes);
  }
  SpawnPlan(const SpawnPlan&) = delete;
  SpawnPlan& operator=(const SpawnPlan&) = delete;
  ~SpawnPlan() {
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&attributes);
  }
};

constexpr int kFirst = 3;  // the child's first descriptor after the standard ones

// Copies of descriptors with numbers above those of the child, so that moving one overwrites none
// that must still be moved. Closed with this object.
class Copies {
 public:
  Copies() = default;
  Copies(const Copies&) = delete;
  Copies& operator=(const Copies&) = delete;
  ~Copies() {
    for (const int fd : fds_) close(fd);
  }
  Status add(int fd, int above) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, above);
    if (copy < 0) {
      return invalid_argument("descriptor {} cannot be handed on: {}", fd, std::strerror(errno));
    }
    fds_.push_back(copy);
    return {};
  }
  const std::vector<int>& fds() const { return fds_; }

 private:
  std::vector<int> fds_;
};

}  // namespace

Result<ChildProcess> ChildProcess::start(const Options& options) {
  if (options.command.empty()) return invalid_argument("there is no program to start");
  Copies copies;
  const int after = kFirst + static_cast<int>(options.descriptors.size());
  for (const int fd : options.descriptors) REVERIE_RETURN_IF_ERROR(copies.add(fd, after));

  SpawnPlan plan;
  posix_spawn_file_actions_addopen(&plan.files, 0, "/dev/null", O_RDONLY, 0);
  for (std::size_t i = 0; i < copies.fds().size(); ++i) {
    posix_spawn_file_actions_adddup2(&plan.files, copies.fds()[i], kFirst + static_cast<int>(i));
  }
  posix_spawn_file_actions_addclosefrom_np(&plan.files, after);
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  posix_spawnattr_setsigmask(&plan.attributes, &blocked);
  posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSIGMASK);

  std::vector<char*> arguments;
  for (const std::string& word : options.command) {
    arguments.push_back(const_cast<char*>(word.c_str()));  // not written to, by its contract
  }
  arguments.push_back(nullptr);
  pid_t pid = -1;
  const int error =
      posix_spawnp(&pid, arguments[0], &plan.files, &plan.attributes, arguments.data(), environ);
  if (error != 0) {
    return resource_exhausted("'{}' cannot be started: {}", options.command[0],
                              std::strerror(error));
  }
  return ChildProcess(pid, pid_descriptor(pid));
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)),
      pid_fd_(std::exchange(other.pid_fd_, -1)),
      has_ended_(other.has_ended_),
      end_text_(std::move(other.end_text_)),
      fork_guard_(other.fork_guard_) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pid_fd_, other.pid_fd_);
  std::swap(has_ended_, other.has_ended_);
  std::swap(end_text_, other.end_text_);
  std::swap(fork_guard_, other.fork_guard_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0 && fork_guard_.check("ChildProcess").ok()) kill();
  if (pid_fd_ >= 0) close(pid_fd_);
}

void ChildProcess::note_end(int code, int status) {
  has_ended_ = true;
  if (code == CLD_EXITED) {
    end_text_ = format("exited with status {}", status);
  } else {
    end_text_ = format("was killed by signal {} ({})", status, strsignal(status));
  }
}

bool ChildProcess::has_ended() {
  if (has_ended_) return true;
  siginfo_t about{};
  int result = 0;
  do {
    result = waitid(P_PID, static_cast<id_t>(pid_), &about, WEXITED | WNOHANG);
  } while (result != 0 && errno == EINTR);
  if (result != 0) {  // it was waited for elsewhere, or SIGCHLD is ignored
    has_ended_ = true;
    end_text_ = "ended";
  } else if (about.si_pid != 0) {
    note_end(about.si_code, about.si_status);
  }
  return has_ended_;
}

bool ChildProcess::wait(Duration at_most) {
  const Clock& clock = Clock::system();
  const TimePoint end = clock.now() + at_most;
  while (!has_ended()) {
    const Duration left = end - clock.now();
    if (left <= Duration(0)) return false;
    // Without a descriptor to wait on, wait in slices.
    const auto slice = pid_fd_ >= 0 ? left : std::min<Duration>(left, std::chrono::milliseconds(2));
    pollfd watched{pid_fd_, POLLIN, 0};
    timespec limit{};
    limit.tv_sec = slice.count() / 1'000'000'000;
    limit.tv_nsec = slice.count() % 1'000'000'000;
    ppoll(&watched, pid_fd_ >= 0 ? 1 : 0, &limit, nullptr);
  }
  return true;
}

void ChildProcess::kill() {
  if (pid_ <= 0 || has_ended()) return;
  ::kill(pid_, SIGKILL);
  // Even a killed process may take a while, since its memory is freed first.
  wait(std::chrono::seconds(10));
}

Status exit_with_parent(int parent_pid) {
  const int parent = pid_descriptor(parent_pid);
  const auto has_parent = [parent_pid] { return getppid() == parent_pid; };
  if (parent >= 0 && has_parent()) {
    auto watch = start_thread("a child process", [parent] {
      pollfd watched{parent, POLLIN, 0};
      while (poll(&watched, 1, -1) <= 0) {
      }
      _exit(0);
    });
    if (watch.ok()) {
      watch->detach();
      return {};
    }
  }
  if (parent >= 0) close(parent);
  // On an old kernel, or without a thread, a signal instead. It is also sent when the thread that
  // started this process ends.
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (!has_parent()) return failed_precondition("the parent process {} is gone", parent_pid);
  return {};
}

void ignore_interrupts() {
  struct sigaction ignore {};
  ignore.sa_handler = SIG_IGN;
  sigaction(SIGINT, &ignore, nullptr);
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

}  // namespace reverie
