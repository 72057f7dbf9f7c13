#include "reverie/client/item_stream.h"

#include <utility>
#include <vector>

#include "reverie/client/hand_back.h"

namespace reverie {

std::vector<Prefetcher<FedSamples>::Make> ItemStream::feeds(
    const std::shared_ptr<ReplayService>& service, const ItemStreamOptions& options) {
  SampleFeedOptions feed = options.feed;
  feed.keeps_trajectories = options.max_times_sampled >= 1;
  std::shared_ptr<SampleFeed::Budget> budget;
  if (options.samples_max > 0) budget = std::make_shared<SampleFeed::Budget>(options.samples_max);
  std::vector<Prefetcher<FedSamples>::Make> made;
  for (std::size_t i = 0; i < options.thread_count; ++i) {
    made.emplace_back(SampleFeed(service, feed, budget));
  }
  return made;
}

ItemStream::ItemStream(std::shared_ptr<ReplayService> service, const ItemStreamOptions& options)
    : service_(std::move(service)),
      table_(options.feed.table),
      max_times_sampled_(options.max_times_sampled),
      prefetcher_(options.thread_count, feeds(service_, options), /*ignores_unwanted=*/true) {}

void ItemStream::close(SampleBatch unused) {
  std::vector<SampleBatch> batches;
  if (!unused.empty()) batches.push_back(std::move(unused));
  for (FedSamples& fed : prefetcher_.close()) batches.push_back(std::move(fed.samples));
  if (max_times_sampled_ < 1 || batches.empty()) return;
  hand_back_or_warn(*service_, table_, max_times_sampled_, batches, "max_in_flight_samples");
}

}  // namespace reverie
