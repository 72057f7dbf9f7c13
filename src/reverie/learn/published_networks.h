// All networks of an agent in versions that many threads read while one publishes.
//
// One PublishedParameters (nn/published_parameters.h) each: no lock, no wait. A reader of several
// networks takes them again until all are of one version, so what it holds is never torn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "reverie/learn/agent.h"
#include "reverie/nn/published_parameters.h"

namespace reverie {

class PublishedNetworks {
 public:
  // The first version is that of `weights`, of which only the first `network_count` networks are
  // published. Requires reader_count >= 1, network_count >= 1.
  PublishedNetworks(const WeightsView& weights, std::size_t network_count,
                    std::size_t reader_count);

  // All that are published, of one version; valid until the reader's next call. For the thread of
  // that reader alone. Versions count publications, from that of the first weights on.
  WeightsView acquire(std::size_t reader);
  // The policy's network alone.
  nn::PublishedParameters::Version acquire_policy(std::size_t reader);

  // One thread at a time.
  void publish(const WeightsView& weights);

 private:
  std::vector<std::unique_ptr<nn::PublishedParameters>> networks_;
  std::vector<std::vector<const nn::Parameters*>> held_;  // by each reader
  const std::uint64_t first_version_;
};

}  // namespace reverie
