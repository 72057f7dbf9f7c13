#include "reverie/client/sample_feed.h"

#include <algorithm>
#include <utility>

#include "reverie/client/hand_back.h"

namespace reverie {
namespace {

// A request for several items ends after this time, and the next one asks for fewer.
constexpr double kPatienceS = 0.05;
// Items of the first request if it may ask for several.
constexpr std::size_t kSeveral = 4;
// If an item arrives within this time, the next request is larger.
constexpr double kQuickS = 0.005;

bool are_alike(const TrajectoryView& a, const TrajectoryView& b) {
  if (a.layout != b.layout) {
    const auto columns_a = a.layout->columns();
    const auto columns_b = b.layout->columns();
    const auto same = [](const LayoutColumn& x, const LayoutColumn& y) {
      return x.spec == y.spec && x.squeezed == y.squeezed;
    };
    if (!std::ranges::equal(columns_a, columns_b, same) ||
        a.layout->structure() != b.layout->structure()) {
      return false;
    }
  }
  for (std::size_t c = 0; c < a.layout->columns().size(); ++c) {
    if (a.length(a.layout->columns()[c]) != b.length(b.layout->columns()[c])) return false;
  }
  return true;
}

}  // namespace

Result<std::vector<SampleGroup>> assemble_groups(const SampleBatch& samples, Allocator& allocator,
                                                 ExternalFiles* files) {
  std::vector<SampleGroup> groups;
  const std::span<const TrajectoryView> items = samples.trajectories();
  const BatchOptions options{.allocator = &allocator, .files = files};
  for (std::size_t begin = 0; begin < items.size();) {
    std::size_t end = begin + 1;
    while (end < items.size() && are_alike(items[begin], items[end])) ++end;
    SampleGroup& group = groups.emplace_back();
    group.begin = begin;
    group.count = end - begin;
    REVERIE_RETURN_IF_ERROR(assemble_into(items.subspan(begin, group.count), options, group.batch));
    for (const LayoutColumn& column : items[begin].layout->columns()) {
      group.squeezed.push_back(column.squeezed);
    }
    begin = end;
  }
  return groups;
}

std::size_t SampleFeed::take_budget(std::size_t count) {
  if (!budget_) return count;
  std::int64_t left = budget_->load(std::memory_order_relaxed);
  while (left > 0) {
    const std::int64_t taken = std::min(left, static_cast<std::int64_t>(count));
    if (budget_->compare_exchange_weak(left, left - taken, std::memory_order_relaxed)) {
      return static_cast<std::size_t>(taken);
    }
  }
  return 0;
}

void SampleFeed::give_back(std::size_t count) {
  if (budget_) budget_->fetch_add(static_cast<std::int64_t>(count), std::memory_order_relaxed);
}

void SampleFeed::set_request_max(std::size_t count) {
  options_.request_max = count;
  wanted_ = std::min(kSeveral, count);
}

// Estimates the bytes of a request's items from those that arrived.
void SampleFeed::bound_bytes(const FedSamples& fed) {
  std::size_t size_bytes = 0;
  for (const SampleGroup& group : fed.groups) {
    for (const BatchColumn& column : group.batch.columns) size_bytes += column.bytes.size_bytes();
  }
  const std::size_t of_one = std::max<std::size_t>(1, size_bytes / fed.samples.size());
  wanted_ = std::clamp<std::size_t>(options_.bytes_max / of_one, 1, wanted_);
}

Result<std::vector<SampleGroup>> SampleFeed::groups_of(SampleBatch& batch,
                                                       const WaitOptions& wait) {
  auto groups = assemble_groups(batch, *memory_, options_.files.get());
  const bool is_corrupt = groups.status().code() == StatusCode::kDataLoss;
  if (!is_corrupt || options_.on_corrupt == OnCorrupt::kRaise) return groups;
  REVERIE_ASSIGN_OR_RETURN(const std::size_t gone,
                           take_out_corrupt(*service_, options_.table, groups.status(), wait, batch,
                                            options_.files.get()));
  give_back(gone);
  return assemble_groups(batch, *memory_, options_.files.get());
}

Result<FedSamples> SampleFeed::operator()(const WaitOptions& wait) {
  const Clock& clock = options_.clock ? *options_.clock : Clock::system();
  const TimePoint called = clock.now();
  std::optional<TimePoint> wanted;
  if (options_.wanted_since) wanted = options_.wanted_since();
  const TimePoint begin = wanted ? *wanted : waiting_since_.value_or(called);
  waiting_since_.reset();
  const TimePoint until = options_.timeout ? begin + *options_.timeout : TimePoint::max();
  std::size_t count = options_.is_local ? options_.request_max : wanted_;
  while (true) {
    count = take_budget(count);
    if (count == 0) return out_of_range("all samples that were asked for are drawn");
    SampleRequest request;
    request.table = options_.table;
    request.count = count;
    request.min_count = options_.is_local ? 1 : count;
    request.awaits_receipt = options_.awaits_receipt;
    request.deadline =
        request.min_count == 1 ? until : std::min(until, clock.now() + seconds(kPatienceS));
    SampleResult result = sample_and_wait(*service_, std::move(request), wait);
    const std::size_t drawn = result.batch.size();
    give_back(count - drawn);
    if (drawn > 0) {
      const bool is_quick = clock.now() - called < seconds(kQuickS);
      if (drawn < count) {
        wanted_ = std::max<std::size_t>(1, drawn / 2);
      } else if (is_quick || count > 1) {
        wanted_ = std::min(2 * count, options_.request_max);
      }
      std::optional<WaitScope> long_copy;
      if (gathered_bytes(result.batch) > kLongCopyBytes) long_copy.emplace(wait);
      auto groups = groups_of(result.batch, wait);
      if (!groups.ok()) {
        give_back(result.batch.size());
        // A corrupt item would be drawn again.
        if (groups.status().code() != StatusCode::kDataLoss) {
          hand_back_of_failed_call(*service_, options_.table, std::move(result.batch));
        }
        return groups.status();
      }
      FedSamples fed;
      fed.groups = std::move(groups).value();
      if (fed.groups.empty()) {
        count = wanted_;
        continue;
      }
      fed.samples = std::move(result.batch);
      if (options_.keeps_trajectories) {
        fed.samples.retain();
      } else {
        fed.samples.unpin();
      }
      if (options_.bytes_max > 0) bound_bytes(fed);
      return fed;
    }
    const bool was_interrupted = result.status.code() == StatusCode::kCancelled;
    if (was_interrupted && options_.continues_waits) waiting_since_ = begin;
    const bool may_wait_longer =
        result.status.code() == StatusCode::kDeadlineExceeded && clock.now() < until;
    if (!may_wait_longer) return result.status;
    count = wanted_ = 1;
  }
}

}  // namespace reverie
