#include "reverie/nn/published_parameters.h"

#include <algorithm>

#include "reverie/base/check.h"

namespace reverie::nn {

PublishedParameters::PublishedParameters(const Parameters& first, std::size_t reader_count)
    : slots_(std::make_unique<Slot[]>(reader_count)), reader_count_(reader_count) {
  REVERIE_CHECK(reader_count >= 1 && reader_count < kNone - 2);
  blocks_.resize(reader_count + 2);
  for (Block& block : blocks_) block.parameters = Parameters(first.float_count());
  blocks_[0].parameters.assign(first);
}

PublishedParameters::Version PublishedParameters::acquire(std::size_t reader) {
  REVERIE_CHECK(reader < reader_count_);
  Slot& slot = slots_[reader];
  // Sequentially consistent, here and in publish(): either the publisher sees that this reader
  // named the block, or this reader sees that another block became the latest.
  for (;;) {
    const std::uint32_t index = latest_.load();
    slot.block.store(index);
    if (latest_.load() == index) return {&blocks_[index].parameters, blocks_[index].version};
  }
}

void PublishedParameters::release(std::size_t reader) {
  REVERIE_CHECK(reader < reader_count_);
  slots_[reader].block.store(kNone, std::memory_order_release);
}

std::uint64_t PublishedParameters::publish(const Parameters& parameters, std::uint64_t version) {
  REVERIE_CHECK(version > version_.load(std::memory_order_relaxed));
  const std::uint32_t latest = latest_.load();
  const auto is_named = [this](std::uint32_t index) {
    return std::any_of(slots_.get(), slots_.get() + reader_count_,
                       [index](const Slot& slot) { return slot.block.load() == index; });
  };
  std::uint32_t index = 0;
  while (index == latest || is_named(index)) ++index;
  REVERIE_CHECK(index < blocks_.size());
  blocks_[index].parameters.assign(parameters);
  blocks_[index].version = version;
  latest_.store(index);
  version_.store(version, std::memory_order_release);
  return version;
}

}  // namespace reverie::nn
