#include "reverie/native_wire/insert_session.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

constexpr std::size_t kIdDigits = 32;

}  // namespace

InsertSession::Call InsertSession::promote() {
  if (current_ || under_way_ > 0 || !next_) return nullptr;
  current_ = std::move(next_);
  next_ = nullptr;
  return current_;
}

bool InsertSession::attach(const Call& call, std::uint64_t ordinal) {
  call->pause_reading();
  Call current;
  Call next;
  Call promoted;
  {
    MutexLock lock(mutex_);
    if (ordinal != 0 && ordinal < newest_) return false;
    newest_ = std::max(newest_, ordinal);
    current = current_;
    next = std::exchange(next_, call);
    promoted = promote();
  }
  const Status taken_over = unavailable("another stream of this session took over");
  if (next) next->abort(taken_over);
  if (current) current->abort(taken_over);
  if (promoted) promoted->resume_reading();
  return true;
}

void InsertSession::leave(const Call& call) {
  Call promoted;
  {
    MutexLock lock(mutex_);
    if (next_ == call) next_ = nullptr;
    if (current_ == call) current_ = nullptr;
    promoted = promote();
  }
  if (promoted) promoted->resume_reading();
}

bool InsertSession::begin(std::uint64_t number) {
  MutexLock lock(mutex_);
  if (number < settled_below_ || in_.contains(number)) return true;
  ++under_way_;
  return false;
}

void InsertSession::note_done(std::uint64_t number, bool is_in) {
  Call promoted;
  {
    MutexLock lock(mutex_);
    if (is_in) in_.add(number);
    --under_way_;
    promoted = promote();
  }
  if (promoted) promoted->resume_reading();
}

bool InsertSession::settle(std::uint64_t below) {
  MutexLock lock(mutex_);
  if (below <= settled_below_) return false;
  settled_below_ = below;
  in_.drop_below(below);
  return true;
}

bool InsertSessions::is_id(std::string_view id) {
  return id.size() == kIdDigits && std::ranges::all_of(id, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::shared_ptr<InsertSession> InsertSessions::open(const std::string& id) {
  MutexLock lock(mutex_);
  expire();
  const auto [found, is_new] = sessions_.try_emplace(id);
  Entry& entry = found->second;
  if (is_new) {
    entry.session = std::make_shared<InsertSession>();
  } else if (entry.users == 0) {
    idle_.erase(entry.idle);
  }
  ++entry.users;
  return entry.session;
}

void InsertSessions::close(const std::string& id) {
  MutexLock lock(mutex_);
  const auto found = sessions_.find(id);
  if (found == sessions_.end() || --found->second.users > 0) return;
  found->second.idle = idle_.insert(idle_.end(), {id, clock_.now()});
  expire();
}

void InsertSessions::restore(const std::string& id, NumberSet in) {
  MutexLock lock(mutex_);
  Entry& entry = sessions_[id];
  entry.session = std::make_shared<InsertSession>(std::move(in));
  entry.idle = idle_.insert(idle_.end(), {id, clock_.now()});
}

std::size_t InsertSessions::count() {
  MutexLock lock(mutex_);
  return sessions_.size();
}

void InsertSessions::expire() {
  const TimePoint now = clock_.now();
  while (!idle_.empty() &&
         (idle_.size() > idle_count_max_ || idle_.front().since + idle_time_ <= now)) {
    if (on_forget_) on_forget_(idle_.front().id);
    sessions_.erase(idle_.front().id);
    idle_.pop_front();
  }
}

std::shared_ptr<InsertSessions> insert_sessions_of(ReplayService& service, Clock& clock) {
  auto sessions = std::make_shared<InsertSessions>(clock);
  for (SessionNumbers& known : service.known_sessions()) {
    if (InsertSessions::is_id(known.session)) {
      sessions->restore(known.session, std::move(known.in));
    }
  }
  sessions->set_on_forget(
      [&service](const std::string& session) { service.settle(session, UINT64_MAX); });
  return sessions;
}

}  // namespace reverie
