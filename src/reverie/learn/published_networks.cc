// Tested in parameter_server_test.cc.
#include "reverie/learn/published_networks.h"

#include "reverie/base/check.h"

namespace reverie {

PublishedNetworks::PublishedNetworks(const WeightsView& weights, std::size_t network_count,
                                     std::size_t reader_count)
    : held_(reader_count, std::vector<const nn::Parameters*>(network_count)),
      first_version_(weights.version),
      changed_(network_count, weights.version) {
  REVERIE_CHECK(network_count >= 1 && network_count <= weights.networks.size());
  for (std::size_t i = 0; i < network_count; ++i) {
    networks_.push_back(
        std::make_unique<nn::PublishedParameters>(*weights.networks[i], reader_count));
  }
}

WeightsView PublishedNetworks::acquire(std::size_t reader) {
  std::vector<const nn::Parameters*>& held = held_[reader];
  for (;;) {
    const nn::PublishedParameters::Version first = networks_[0]->acquire(reader);
    held[0] = first.parameters;
    bool is_whole = true;
    for (std::size_t i = 1; i < networks_.size() && is_whole; ++i) {
      const nn::PublishedParameters::Version next = networks_[i]->acquire(reader);
      held[i] = next.parameters;
      is_whole = next.version <= first.version;
    }
    if (is_whole) return {held, first_version_ + first.version};
  }
}

nn::PublishedParameters::Version PublishedNetworks::acquire_policy(std::size_t reader) {
  nn::PublishedParameters::Version version = networks_[0]->acquire(reader);
  version.version += first_version_;
  return version;
}

void PublishedNetworks::publish(const WeightsView& weights) {
  ++publication_;
  for (std::size_t i = networks_.size(); i-- > 0;) {
    const bool is_same = i > 0 && !weights.changed.empty() && weights.changed[i] <= changed_[i];
    if (is_same) continue;
    networks_[i]->publish(*weights.networks[i], publication_);
    changed_[i] = weights.version;
  }
}

}  // namespace reverie
