// Faucet: a service that only gives out items, to test code that draws from a service.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "reverie/record/trajectory.h"
#include "reverie/service/replay_service.h"
#include "tests/support/values.h"

namespace reverie {

// A service that gives out each of its items once. It never waits: a request that cannot be served
// completely ends with what there is, as if its deadline had passed; without a deadline it is
// cancelled.
//
// `spent_after` says after how many samples items leave a table. Whatever is inserted counts as
// handed back. For one thread at a time; `asked` and `returned` may be read while no call runs.
class Faucet final : public ReplayService {
 public:
  struct Asked {
    std::size_t count;
    std::size_t min_count;
    bool has_deadline;
    friend bool operator==(const Asked&, const Asked&) = default;
  };

  // Adds an item of one int64 column with `rows` rows, all equal to `number`.
  void add(std::int64_t number, std::uint32_t rows) {
    const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{{"n", DType::kInt64, {}}});
    const Ref<Chunk> chunk = Chunk::open(schema, {}, rows, 0, Allocator::heap()).value();
    for (std::uint32_t r = 0; r < rows; ++r) chunk->set_row(0, r, i64(number).bytes);
    chunk->publish(rows);
    const auto layout = make_ref<Layout>(
        std::vector<LayoutColumn>{{schema->column(0), 0, 0, 1, false}}, std::string("*"));
    items_.emplace_back(layout, std::vector<Piece>{{chunk.get(), 0, rows}});
    waiting_.push_back(items_.size() - 1);
  }
  void add_ones(int count) {
    for (int i = 0; i < count; ++i) add(i, 1);
  }

  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    asked.push_back({request.count, request.min_count, request.deadline != TimePoint::max()});
    SampleResult result;
    while (result.batch.size() < request.count && !waiting_.empty()) {
      SampledItem item;
      item.key = waiting_.front();
      item.trajectory = items_[waiting_.front()].view();
      item.probability = 0.5;
      item.times_sampled = 1;
      item.table_size = static_cast<std::int64_t>(waiting_.size()) + 1;
      waiting_.pop_front();
      result.batch.add(item);
    }
    if (result.batch.size() < request.min_count) {
      result.status = asked.back().has_deadline ? deadline_exceeded("too late")
                                                : cancelled("there will never be more");
    }
    done(std::move(result));
    return 0;
  }

  std::vector<Asked> asked;
  std::map<std::string, std::int64_t> spent_after;
  std::vector<ItemKey> returned;

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    for (const Item& item : request.items) returned.push_back(item.key);
    done({{}, request.items.size()});
    return 0;
  }
  RequestId mutate(const MutateRequest&, Done<MutateResult> done) override {
    done({.status = unimplemented("no updates")});
    return 0;
  }
  RequestId lookup(const LookupRequest&, Done<LookupResult> done) override {
    done({unimplemented("no look-ups"), {}, {}});
    return 0;
  }
  RequestId reset(std::string_view, Done<Status> done) override {
    done(unimplemented("no resets"));
    return 0;
  }
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    std::vector<TableInfo> infos;
    for (const auto& [name, times] : spent_after) {
      infos.emplace_back().options.name = name;
      infos.back().options.max_times_sampled = times;
    }
    done(std::move(infos));
    return 0;
  }
  RequestId why_blocked(std::string_view, Done<Result<BlockedReport>> done) override {
    done(unimplemented("no reports"));
    return 0;
  }
  void cancel(RequestId) override {}
  void close() override {}

 private:
  std::deque<Trajectory> items_;
  std::deque<std::size_t> waiting_;
};

}  // namespace reverie
