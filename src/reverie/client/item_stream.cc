#include "reverie/client/item_stream.h"

#include <deque>
#include <utility>
#include <vector>

#include "reverie/client/hand_back.h"

namespace reverie {

std::vector<Prefetcher<FedSamples>::Make> ItemStream::feeds(const ItemStreamOptions& options) {
  SampleFeedOptions feed = options.feed;
  feed.keeps_trajectories = options.max_times_sampled >= 1;
  feed.awaits_receipt = receipts_.are_kept();
  feed.continues_waits = true;  // pauses interrupt them
  // The prefetcher is made by then: its threads begin in a pause.
  feed.wanted_since = [this] { return prefetcher_.wanted_since(); };
  std::vector<Prefetcher<FedSamples>::Make> made;
  for (std::size_t i = 0; i < options.thread_count; ++i) {
    made.emplace_back(SampleFeed(service_, feed, budget_));
  }
  return made;
}

ItemStream::ItemStream(std::shared_ptr<ReplayService> service, const ItemStreamOptions& options)
    : service_(std::move(service)),
      table_(options.feed.table),
      max_times_sampled_(options.max_times_sampled),
      budget_(options.samples_max > 0 ? std::make_shared<SampleFeed::Budget>(options.samples_max)
                                      : nullptr),
      receipts_(*service_, table_),
      prefetcher_(options.thread_count, feeds(options), /*ignores_unwanted=*/true, /*pauses=*/1),
      pause_(PrefetcherPause<FedSamples>::start(
          readers_of(*service_, max_times_sampled_), prefetcher_,
          [this](std::deque<FedSamples> unused) { hand_back_to_go_on(std::move(unused)); })) {}

Result<FedSamples> ItemStream::next(const WaitOptions& wait) {
  receipts_.finish();
  Result<FedSamples> fed = prefetcher_.next(wait);
  if (fed.ok()) receipts_.took(fed->samples);
  return fed;
}

std::optional<FedSamples> ItemStream::next_now() {
  receipts_.finish();
  std::optional<FedSamples> fed = prefetcher_.next_now();
  if (fed) receipts_.took(fed->samples);
  return fed;
}

void ItemStream::hand_back_to_go_on(std::deque<FedSamples> unused) {
  for (std::size_t i = unused.size(); i-- > 0;) {
    SampleBatch& samples = unused[i].samples;
    if (budget_) budget_->fetch_add(static_cast<std::int64_t>(samples.size()));
    (void)service_->hand_back(table_, samples);
  }
}

void ItemStream::close(SampleBatch unused) {
  std::vector<SampleBatch> batches;
  if (!unused.empty()) batches.push_back(std::move(unused));
  for (FedSamples& fed : prefetcher_.close()) batches.push_back(std::move(fed.samples));
  pause_->detach();
  receipts_.finish();
  if (max_times_sampled_ < 1 || batches.empty()) return;
  hand_back_or_warn(*service_, table_, max_times_sampled_, batches, "max_in_flight_samples");
}

}  // namespace reverie
