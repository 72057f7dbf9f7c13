// FakeReplayService: a service that keeps items in lists, to test its clients.
//
// A table admits as many items as it was told to; the others wait, in order. It keeps every item
// and draws nothing: all() returns the items in the order of their admission.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/service/replay_service.h"

namespace reverie {

class FakeReplayService : public ReplayService {
 public:
  static constexpr std::int64_t kUnlimited = std::int64_t{1} << 60;

  ~FakeReplayService() override { close(); }

  void add_table(const std::string& name, std::int64_t admits = kUnlimited,
                 std::optional<Signature> signature = {}) {
    MutexLock lock(mutex_);
    Table& table = tables_[name];
    table.admits = admits;
    table.info.options.name = name;
    table.info.options.signature = std::move(signature);
  }

  // Admits `more` items, starting with those that wait.
  void admit(const std::string& name, std::int64_t more) {
    std::vector<Pending> served;
    {
      MutexLock lock(mutex_);
      Table& table = tables_.at(name);
      table.admits += more;
      while (table.admits > 0 && !table.pending.empty()) {
        take(table, table.pending.front().item);
        served.push_back(std::move(table.pending.front()));
        table.pending.pop_front();
      }
    }
    for (Pending& pending : served) pending.done({{}, 1});
  }

  // Fails the first waiting item.
  void fail_first(const std::string& name, const Status& status) {
    Pending failed;
    {
      MutexLock lock(mutex_);
      Table& table = tables_.at(name);
      failed = std::move(table.pending.front());
      table.pending.pop_front();
    }
    failed.done({status, 0});
  }

  std::size_t size(const std::string& name) {
    MutexLock lock(mutex_);
    return tables_.at(name).items.size();
  }
  std::size_t waiting(const std::string& name) {
    MutexLock lock(mutex_);
    return tables_.at(name).pending.size();
  }
  std::size_t info_calls() {
    MutexLock lock(mutex_);
    return info_calls_;
  }
  // Item `i` in order of admission; valid as long as the service.
  const Item& item(const std::string& name, std::size_t i) {
    MutexLock lock(mutex_);
    return tables_.at(name).items.at(i);
  }
  void drop_items(const std::string& name) {
    std::deque<Item> dropped;
    MutexLock lock(mutex_);
    dropped.swap(tables_.at(name).items);
  }
  // All items of a table as one batch, which shares their chunks.
  SampleBatch all(const std::string& name) {
    SampleBatch batch;
    MutexLock lock(mutex_);
    for (const Item& item : tables_.at(name).items) {
      SampledItem sampled;
      sampled.key = item.key;
      sampled.trajectory = item.trajectory.view();
      batch.add(sampled);
    }
    return batch;
  }

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    InsertResult result;
    {
      MutexLock lock(mutex_);
      const auto found = tables_.find(std::string(request.table));
      if (closed_) {
        result.status = cancelled("the service is closed");
      } else if (found == tables_.end()) {
        result.status = not_found("no table '{}'", request.table);
      } else {
        Table& table = found->second;
        // Writers only send one item at a time.
        REVERIE_CHECK(request.items.size() == 1);
        if (table.admits > 0 && table.pending.empty()) {
          take(table, request.items[0]);
          result.applied = 1;
        } else {
          table.pending.push_back({++last_id_, std::move(request.items[0]), std::move(done)});
          return last_id_;
        }
      }
    }
    done(std::move(result));
    return 0;
  }

  void set_unreachable(Status why) {
    MutexLock lock(mutex_);
    unreachable_ = std::move(why);
  }
  Status why_unreachable() override {
    MutexLock lock(mutex_);
    return unreachable_;
  }

  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    std::vector<TableInfo> infos;
    {
      MutexLock lock(mutex_);
      ++info_calls_;
      for (const auto& [name, table] : tables_) infos.push_back(table.info);
    }
    done(std::move(infos));
    return 0;
  }

  void cancel(RequestId id) override {
    Pending found;
    {
      MutexLock lock(mutex_);
      for (auto& [name, table] : tables_) {
        for (auto p = table.pending.begin(); p != table.pending.end(); ++p) {
          if (p->id != id) continue;
          found = std::move(*p);
          table.pending.erase(p);
          break;
        }
      }
    }
    if (found.done) found.done({cancelled("cancelled"), 0});
  }

  void close() override {
    std::vector<Pending> all;
    {
      MutexLock lock(mutex_);
      closed_ = true;
      for (auto& [name, table] : tables_) {
        for (Pending& pending : table.pending) all.push_back(std::move(pending));
        table.pending.clear();
      }
    }
    for (Pending& pending : all) pending.done({cancelled("the service is closed"), 0});
  }

  // Drawing and updating are not supported.
  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    done({unimplemented("no samples from '{}'", request.table), {}});
    return 0;
  }
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override {
    done({.status = unimplemented("no updates of '{}'", request.table)});
    return 0;
  }
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override {
    done({unimplemented("no look-ups in '{}'", request.table), {}, {}});
    return 0;
  }
  RequestId reset(std::string_view table, Done<Status> done) override {
    done(unimplemented("no reset of '{}'", table));
    return 0;
  }
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override {
    done(unimplemented("no report on '{}'", table));
    return 0;
  }

 private:
  struct Pending {
    RequestId id = 0;
    Item item;
    Done<InsertResult> done;
  };
  struct Table {
    TableInfo info;
    std::int64_t admits = 0;
    std::deque<Item> items;
    std::deque<Pending> pending;
  };

  void take(Table& table, Item& item) REVERIE_REQUIRES(mutex_) {
    --table.admits;
    table.items.push_back(std::move(item));
  }

  Mutex mutex_;
  std::map<std::string, Table> tables_ REVERIE_GUARDED_BY(mutex_);
  RequestId last_id_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::size_t info_calls_ REVERIE_GUARDED_BY(mutex_) = 0;
  Status unreachable_ REVERIE_GUARDED_BY(mutex_);
  bool closed_ REVERIE_GUARDED_BY(mutex_) = false;
};

}  // namespace reverie
