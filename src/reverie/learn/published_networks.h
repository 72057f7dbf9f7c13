// All networks of an agent, in versions that many threads read while one thread publishes.
//
// Each network is a PublishedParameters (nn/published_parameters.h): no lock, no wait. A network
// that has not changed is not copied again, as a target network in most steps: it keeps its
// version. The policy's network is copied each time, and last: so the others belong to it unless
// one of them is newer, and then a reader acquires all again.
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
  std::uint64_t publication_ = 0;
  std::vector<std::uint64_t> changed_;  // by network: the version of the weights when it was copied
};

}  // namespace reverie
