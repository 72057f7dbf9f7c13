#include "reverie/net/io_threads.h"

#include <algorithm>
#include <utility>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/post.hpp>
#include <asio/steady_timer.hpp>

#include "reverie/base/signals_blocked.h"

namespace reverie {
namespace {

// One thread runs a context, so Asio may omit its locking.
constexpr int kOneThread = 1;
// A later timer is as good as none, and adding this to now does not overflow.
constexpr Duration kTimerMax = std::chrono::hours(24 * 365);

thread_local const IoLoop* current_loop = nullptr;

}  // namespace

IoLoop::IoLoop()
    : context_(std::make_unique<asio::io_context>(kOneThread)),
      scratch_(std::make_unique_for_overwrite<std::byte[]>(kScratchBytes)) {}

IoLoop::~IoLoop() {
  context_.reset();  // first: its handlers' objects may still use the loop
}

bool IoLoop::is_current() const {
  return current_loop == this;
}

bool IoLoop::post(std::function<void()> work) {
  if (!fork_guard_.check("I/O thread").ok()) return false;
  {
    MutexLock lock(mutex_);
    if (is_stopped_) return false;
    posted_.push_back(std::move(work));
    has_posted_.store(true, std::memory_order_relaxed);
    if (posted_.size() > 1 || is_looking_) return true;  // a wake-up is pending, or not needed
  }
  asio::post(*context_, [this] { drain(); });
  return true;
}

bool IoLoop::drain() {
  {
    MutexLock lock(mutex_);
    running_.swap(posted_);
    has_posted_.store(false, std::memory_order_relaxed);
  }
  if (running_.empty()) return false;
  for (std::function<void()>& work : running_) {
    work();
    work = nullptr;  // its objects are destroyed on this thread, in order
  }
  running_.clear();
  return true;
}

void IoLoop::run() {
  current_loop = this;
  const auto guard = asio::make_work_guard(*context_);
  while (!context_->stopped()) {
    if (context_->poll() > 0 || look()) continue;
    LoopWatch* const watch = watch_;
    if (watch != nullptr) watch->before_sleep();
    context_->run_one();
    if (watch != nullptr && watch == watch_) watch->after_sleep();
  }
  current_loop = nullptr;
}

// Whether an event arrived and was handled before it was time to sleep.
bool IoLoop::look() {
  if (watch_ != nullptr && watch_->is_covered()) return drain();
  {
    MutexLock lock(mutex_);
    is_looking_ = true;
  }
  const bool has_come = spinner_.look(Clock::system(), [this] {
    return has_posted_.load(std::memory_order_relaxed) || (watch_ != nullptr && watch_->look()) ||
           context_->poll() > 0;
  });
  {
    MutexLock lock(mutex_);
    is_looking_ = false;
  }
  return drain() || has_come;
}

void IoLoop::stop() {
  context_->stop();
  if (thread_.joinable()) thread_.join();
  std::vector<std::function<void()>> dropped;
  MutexLock lock(mutex_);
  is_stopped_ = true;
  dropped.swap(posted_);
}

bool IoLoop::run_and_wait(const std::function<void()>& work) {
  if (is_current()) {
    work();
    return true;
  }
  // Notified when the work has run, or was dropped with the loop.
  struct Ticket {
    Mutex mutex;
    CondVar changed;
    bool has_run REVERIE_GUARDED_BY(mutex) = false;
    bool is_gone REVERIE_GUARDED_BY(mutex) = false;
  };
  const auto ticket = std::make_shared<Ticket>();
  {
    const std::shared_ptr<void> guard(nullptr, [ticket](void*) {
      MutexLock lock(ticket->mutex);
      ticket->is_gone = true;
      ticket->changed.notify_all();
    });
    post([&work, ticket, guard] {
      work();
      MutexLock lock(ticket->mutex);
      ticket->has_run = true;
    });
  }
  MutexLock lock(ticket->mutex);
  while (!ticket->is_gone) ticket->changed.wait(ticket->mutex);
  return ticket->has_run;
}

IoThreads::IoThreads(std::size_t thread_count) {
  REVERIE_CHECK(thread_count >= 1);
  for (std::size_t i = 0; i < thread_count; ++i) loops_.push_back(std::make_unique<IoLoop>());
  const SignalsBlocked blocked;
  try {
    for (auto& loop : loops_) loop->thread_ = std::thread([&l = *loop] { l.run(); });
  } catch (...) {
    stop();  // joins those that were started
    throw;
  }
}

IoLoop& IoThreads::next() {
  return *loops_[next_.fetch_add(1, std::memory_order_relaxed) % loops_.size()];
}

void IoThreads::stop() {
  if (!check_fork().ok()) {
    // The child shares the loops' descriptors with its parent: destroying a loop here would remove
    // sockets from the parent's.
    leave_to_parent(std::exchange(loops_, {}));
    return;
  }
  ending_.wait();
  for (auto& loop : loops_) loop->stop();
}

struct LoopTimer::State {
  explicit State(IoLoop& loop) : timer(loop.context()) {}
  asio::steady_timer timer;
  std::uint64_t generation = 0;
  std::function<void()> run;
};

LoopTimer::LoopTimer(IoLoop& loop) : state_(std::make_shared<State>(loop)) {}

LoopTimer::~LoopTimer() {
  cancel();
}

void LoopTimer::start(Duration after, std::function<void()> run) {
  const std::uint64_t generation = ++state_->generation;
  state_->run = std::move(run);
  state_->timer.expires_after(std::clamp(after, Duration::zero(), kTimerMax));
  state_->timer.async_wait([state = state_, generation](const asio::error_code& error) {
    if (error || state->generation != generation) return;
    ++state->generation;
    const std::function<void()> now = std::exchange(state->run, nullptr);
    now();
  });
}

void LoopTimer::cancel() {
  ++state_->generation;
  state_->run = nullptr;
  state_->timer.cancel();
}

}  // namespace reverie
