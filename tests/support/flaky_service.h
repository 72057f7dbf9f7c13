// FlakyService: a service that becomes unavailable, silent, frozen or late when a test says so.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/service/replay_service.h"

namespace reverie::testing {

// Thread-safe.
class FlakyService final : public ReplayService {
 public:
  enum class Mode {
    kUp,
    kGone,    // samples and probes fail at once; other calls wait for a server
    kSilent,  // no call is answered
    kFrozen,  // like kSilent, but inserts, even cancelled ones, are done when it is kUp again: a
              // stopped process later reads what is in its sockets
    kLate,    // samples are drawn, and delivered when it is kUp again
  };

  explicit FlakyService(std::shared_ptr<ReplayService> inner) : inner_(std::move(inner)) {}
  ~FlakyService() override { close(); }

  // Held calls are lost, except late samples, which arrive when it is kUp.
  void set(Mode mode) {
    std::map<RequestId, Held> held;
    std::vector<std::function<void()>> late;
    if (mode == Mode::kUp) do_what_froze();  // before any later call
    {
      MutexLock lock(mutex_);
      mode_ = mode;
      if (mode == Mode::kUp) late.swap(late_);
      if (mode == Mode::kUp || mode == Mode::kGone) held.swap(held_);
    }
    for (const auto& deliver : late) deliver();
    for (const auto& [id, fail] : held) fail(unavailable("the connection was lost"));
  }
  std::size_t held() {
    MutexLock lock(mutex_);
    return held_.size();
  }
  void lose_next_mutation() { is_next_mutation_lost_ = true; }
  // It fails before its call returns.
  void lose_next_insert() { is_next_insert_lost_ = true; }
  bool has_lost_insert() const { return !is_next_insert_lost_; }
  int mutations() const { return mutations_; }
  int sample_requests() const { return sample_requests_; }

  void probe(std::function<void(Status)> done) {
    if (is_silent()) {
      hold([done = std::move(done)](const Status& status) { done(status); });
    } else if (mode() == Mode::kGone) {
      done(unavailable("no connection"));
    } else {
      done({});
    }
  }

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    if (is_next_insert_lost_.exchange(false)) {
      done({unavailable("the connection was lost"), 0});
      return 0;
    }
    if (is_here()) return inner_->insert(request, std::move(done));
    auto items = std::make_shared<std::vector<Item>>();
    for (Item& item : request.items) items->push_back(std::move(item));
    if (mode() == Mode::kFrozen) {
      MutexLock lock(mutex_);
      frozen_.push_back([this, items, table = std::string(request.table)] {
        inner_->insert({table, *items, TimePoint::max()}, [](const InsertResult&) {});
      });
    }
    return hold([items, done = std::move(done)](const Status& status) { done({status, 0}); });
  }
  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    ++sample_requests_;
    if (mode() == Mode::kGone) {
      done({unavailable("no connection"), {}});
      return 0;
    }
    if (is_silent()) {
      return hold([done = std::move(done)](const Status& status) { done({status, {}}); });
    }
    if (mode() == Mode::kUp) return inner_->sample(std::move(request), std::move(done));
    inner_->sample(std::move(request), [this, done = std::move(done)](SampleResult result) {
      auto kept = std::make_shared<SampleResult>(std::move(result));
      MutexLock lock(mutex_);
      late_.push_back([done, kept] { done(std::move(*kept)); });
    });
    return kLateId;
  }
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override {
    ++mutations_;
    if (is_next_mutation_lost_.exchange(false)) {
      done({.status = unavailable("the connection was lost")});
      return 0;
    }
    if (is_here()) return inner_->mutate(request, std::move(done));
    return hold([done = std::move(done)](const Status& status) { done({.status = status}); });
  }
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override {
    if (is_here()) return inner_->lookup(request, std::move(done));
    return hold([done = std::move(done)](const Status& status) { done({status, {}, {}}); });
  }
  RequestId reset(std::string_view table, Done<Status> done) override {
    if (is_here()) return inner_->reset(table, std::move(done));
    return hold([done = std::move(done)](const Status& status) { done(status); });
  }
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    if (is_here()) return inner_->info(std::move(done));
    return hold([done = std::move(done)](const Status& status) { done(status); });
  }
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override {
    if (is_here()) return inner_->why_blocked(table, std::move(done));
    return hold([done = std::move(done)](const Status& status) { done(status); });
  }

  void cancel(RequestId id) override {
    Held fail;
    {
      MutexLock lock(mutex_);
      const auto found = held_.find(id);
      if (found != held_.end()) {
        fail = std::move(found->second);
        held_.erase(found);
      }
    }
    if (fail) {
      fail(cancelled("cancelled"));
    } else {
      inner_->cancel(id);
    }
  }
  void close() override {
    std::map<RequestId, Held> held;
    std::vector<std::function<void()>> late;
    {
      MutexLock lock(mutex_);
      is_closed_ = true;
      held.swap(held_);
      late.swap(late_);
    }
    for (const auto& deliver : late) deliver();
    for (const auto& [id, fail] : held) fail(cancelled("closed"));
    inner_->close();
  }

 private:
  using Held = std::function<void(const Status&)>;
  static constexpr RequestId kLateId = RequestId{1} << 62;

  Mode mode() {
    MutexLock lock(mutex_);
    return mode_;
  }
  void do_what_froze() {
    std::vector<std::function<void()>> frozen;
    {
      MutexLock lock(mutex_);
      frozen.swap(frozen_);
    }
    for (const auto& insert : frozen) insert();
  }
  bool is_silent() { return mode() == Mode::kSilent || mode() == Mode::kFrozen; }
  bool is_here() { return mode() == Mode::kUp || mode() == Mode::kLate; }
  // A closed service answers at once, like every service.
  RequestId hold(Held fail) {
    {
      MutexLock lock(mutex_);
      if (!is_closed_) {
        held_.emplace(++last_id_, std::move(fail));
        return last_id_;
      }
    }
    fail(cancelled("closed"));
    return 0;
  }

  const std::shared_ptr<ReplayService> inner_;
  std::atomic<int> mutations_{0};
  std::atomic<bool> is_next_mutation_lost_{false};
  std::atomic<bool> is_next_insert_lost_{false};
  std::atomic<int> sample_requests_{0};
  Mutex mutex_;
  Mode mode_ REVERIE_GUARDED_BY(mutex_) = Mode::kUp;
  bool is_closed_ REVERIE_GUARDED_BY(mutex_) = false;
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = RequestId{1} << 60;
  std::map<RequestId, Held> held_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> late_ REVERIE_GUARDED_BY(mutex_);
  std::vector<std::function<void()>> frozen_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie::testing
