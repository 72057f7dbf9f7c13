#include "reverie/transitions/replay_batch_layout.h"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

const std::vector<TensorSpec> kObs{{"position", DType::kFloat32, {3}},
                                   {"ticks", DType::kInt64, {}}};
const std::vector<TensorSpec> kAction{{"", DType::kInt32, {}}};

std::vector<std::pair<std::string, Shape>> arrays_of(const ReplayBatchLayout& layout) {
  std::vector<std::pair<std::string, Shape>> arrays;
  for (const TensorSpec& spec : layout.specs()) arrays.emplace_back(spec.name, spec.shape);
  return arrays;
}

TEST(ReplayBatchLayout, ATransitionHasARowOfEachArray) {
  const TransitionPlan plan =
      TransitionPlan::make({.capacity = 10, .frame_stack = 4}, kObs, kAction).value();
  const ReplayBatchLayout layout(plan, 5);
  EXPECT_EQ(arrays_of(layout),
            (std::vector<std::pair<std::string, Shape>>{{"obs/position", {5, 4, 3}},
                                                        {"obs/ticks", {5, 4}},
                                                        {"action", {5}},
                                                        {"reward", {5}},
                                                        {"next_obs/position", {5, 4, 3}},
                                                        {"next_obs/ticks", {5, 4}},
                                                        {"terminated", {5}},
                                                        {"discount", {5}},
                                                        {"weights", {5}},
                                                        {"tickets", {5}}}));
  EXPECT_EQ(layout.size_bytes(), 5u * (2 * 4 * (12 + 8) + 4 + 4 + 1 + 4 + 4 + 8));
}

TEST(ReplayBatchLayout, ASequenceHasStepsAndAMask) {
  const TransitionPlan plan =
      TransitionPlan::make({.capacity = 10, .sequence_length = 6, .period = 3, .burn_in = 2}, kObs,
                           kAction)
          .value();
  const ReplayBatchLayout layout(plan, 5);
  EXPECT_TRUE(layout.has_mask());
  const auto arrays = arrays_of(layout);
  ASSERT_EQ(arrays.size(), 11u);
  EXPECT_EQ(arrays[0], (std::pair<std::string, Shape>("obs/position", {5, 8, 3})));
  EXPECT_EQ(arrays[8], (std::pair<std::string, Shape>("mask", {5, 8})));
  EXPECT_EQ(arrays[9], (std::pair<std::string, Shape>("weights", {5})));
}

TEST(ReplayBatchLayout, TargetsAreTheArraysInOrder) {
  const TransitionPlan plan =
      TransitionPlan::make({.capacity = 10, .sequence_length = 2, .period = 2}, kObs, kAction)
          .value();
  const ReplayBatchLayout layout(plan, 3);
  std::vector<Buffer> buffers = layout.allocate(Allocator::heap()).value();
  ASSERT_EQ(buffers.size(), layout.specs().size());
  std::size_t size_bytes = 0;
  std::vector<std::byte*> places;
  for (Buffer& buffer : buffers) {
    size_bytes += buffer.size_bytes();
    places.push_back(buffer.data());
  }
  EXPECT_EQ(size_bytes, layout.size_bytes());
  const ReplayBufferTargets targets = layout.targets(places);
  const TransitionTargets& to = targets.transitions;
  EXPECT_EQ(std::vector(to.obs.begin(), to.obs.end()), (std::vector{places[0], places[1]}));
  EXPECT_EQ(std::vector(to.action.begin(), to.action.end()), std::vector{places[2]});
  EXPECT_EQ(reinterpret_cast<std::byte*>(to.reward), places[3]);
  EXPECT_EQ(std::vector(to.next_obs.begin(), to.next_obs.end()),
            (std::vector{places[4], places[5]}));
  EXPECT_EQ(reinterpret_cast<std::byte*>(to.terminated), places[6]);
  EXPECT_EQ(reinterpret_cast<std::byte*>(to.discount), places[7]);
  EXPECT_EQ(reinterpret_cast<std::byte*>(to.mask), places[8]);
  EXPECT_EQ(reinterpret_cast<std::byte*>(targets.weights), places[9]);
  EXPECT_EQ(reinterpret_cast<std::byte*>(targets.tickets), places[10]);
  EXPECT_EQ(to.hindsight, nullptr);
}

}  // namespace
}  // namespace reverie
