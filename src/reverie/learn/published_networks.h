// All networks of an agent, in versions that many threads read while one thread publishes.
//
// Each network is a PublishedParameters (nn/published_parameters.h): no lock, no wait. A reader of
// several networks acquires them again until all have the same version.
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
  // Starts with the version of `weights`, and publishes only its first `network_count` networks.
  // Requires reader_count >= 1, network_count >= 1.
  PublishedNetworks(const WeightsView& weights, std::size_t network_count,
                    std::size_t reader_count);

  // All published networks, at one version; valid until the reader's next call. Only for that
  // reader's thread. Versions count publications, starting at the first weights' version.
  WeightsView acquire(std::size_t reader);
  // Only the policy's network.
  nn::PublishedParameters::Version acquire_policy(std::size_t reader);

  // Only one thread at a time.
  void publish(const WeightsView& weights);

 private:
  std::vector<std::unique_ptr<nn::PublishedParameters>> networks_;
  std::vector<std::vector<const nn::Parameters*>> held_;  // by reader
  const std::uint64_t first_version_;
};

}  // namespace reverie
