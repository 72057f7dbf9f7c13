#include "tests/conformance/selector_suite.h"

#include "reverie/selectors/heap_selector.h"
#include "reverie/selectors/list_selector.h"
#include "reverie/selectors/prioritized_selector.h"
#include "reverie/selectors/uniform_selector.h"

namespace reverie::testing {
namespace {

using Items = std::span<const SelectorItem>;

INSTANTIATE_TEST_SUITE_P(Fifo, SelectorSuite,
                         ::testing::Values(SelectorKind{
                             "Fifo", [] { return std::make_unique<Fifo>(); },
                             [](Items items) {
                               return first_by(
                                   items, [](auto& a, auto& b) { return a.inserted < b.inserted; });
                             }}));

INSTANTIATE_TEST_SUITE_P(Lifo, SelectorSuite,
                         ::testing::Values(SelectorKind{
                             "Lifo", [] { return std::make_unique<Lifo>(); },
                             [](Items items) {
                               return first_by(
                                   items, [](auto& a, auto& b) { return a.inserted > b.inserted; });
                             }}));

INSTANTIATE_TEST_SUITE_P(Uniform, SelectorSuite,
                         ::testing::Values(SelectorKind{
                             "Uniform", [] { return std::make_unique<Uniform>(std::uint64_t{7}); },
                             [](Items items) {
                               return std::vector<double>(items.size(),
                                                          1.0 / static_cast<double>(items.size()));
                             }}));

const std::vector<double> kAnyPriorities = {-2.5, 0, 1, 1, -1e300, 7, 1e300, 7};

INSTANTIATE_TEST_SUITE_P(MinHeap, SelectorSuite,
                         ::testing::Values(SelectorKind{
                             "MinHeap", [] { return std::make_unique<MinHeap>(); },
                             [](Items items) {
                               return first_by(items, [](auto& a, auto& b) {
                                 return std::pair(a.priority, a.renewed) <
                                        std::pair(b.priority, b.renewed);
                               });
                             },
                             kAnyPriorities}));

INSTANTIATE_TEST_SUITE_P(MaxHeap, SelectorSuite,
                         ::testing::Values(SelectorKind{
                             "MaxHeap", [] { return std::make_unique<MaxHeap>(); },
                             [](Items items) {
                               return first_by(items, [](auto& a, auto& b) {
                                 return std::pair(-a.priority, a.renewed) <
                                        std::pair(-b.priority, b.renewed);
                               });
                             },
                             kAnyPriorities}));

SelectorKind prioritized(double exponent, std::vector<double> priorities) {
  return {"Prioritized",
          [exponent] { return Prioritized::make(exponent, std::uint64_t{7}).value(); },
          [exponent](Items items) {
            std::vector<double> weights;
            for (const SelectorItem& item : items) {
              weights.push_back(item.priority == 0 ? 0 : std::pow(item.priority, exponent));
            }
            const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
            for (double& weight : weights) {
              weight = total == 0 ? 1.0 / static_cast<double>(items.size()) : weight / total;
            }
            return weights;
          },
          std::move(priorities)};
}

const std::vector<double> kSomePriorities = {0, 0.25, 1, 1, 3, 7, 100, 0};

INSTANTIATE_TEST_SUITE_P(Prioritized, SelectorSuite,
                         ::testing::Values(prioritized(1.0, kSomePriorities),
                                           prioritized(0.6, kSomePriorities),
                                           prioritized(0.0, kSomePriorities)));

// A few items have nearly all of the weight: distinct draws still have to find the others.
INSTANTIATE_TEST_SUITE_P(SkewedPrioritized, SelectorSuite,
                         ::testing::Values(prioritized(1.0, {0, 1e-30, 1, 1e12, 1e30, 1e-12})));

// Slots in the order in which they are drawn.
std::vector<Slot> order_of(Selector& selector) {
  std::vector<Slot> slots(selector.size());
  std::vector<double> probabilities(selector.size());
  EXPECT_EQ(selector.draw_distinct(slots, probabilities), slots.size());
  return slots;
}

// What a selector writes about itself into a checkpoint.
std::vector<std::byte> state_of(Selector& selector) {
  std::vector<std::byte> bytes;
  ByteWriter out(bytes);
  EXPECT_TRUE(selector.freeze()->write(out));
  selector.thaw();
  return bytes;
}

// The last draw is undone first, as a table does.
TEST(HeapSelector, AmongEqualsItemsThatReturnHaveTheirFormerOrderBeforeTheOthers) {
  const auto make = [](bool is_min) -> std::unique_ptr<Selector> {
    if (is_min) return std::make_unique<MinHeap>();
    return std::make_unique<MaxHeap>();
  };
  for (const bool is_min : {true, false}) {
    const std::unique_ptr<Selector> heap = make(is_min);
    for (Slot slot = 0; slot < 5; ++slot) heap->insert(slot, 1.0);
    heap->insert(5, is_min ? 0.0 : 2.0);
    for (const Slot slot : {0u, 1u, 2u}) heap->erase(slot);
    for (const Slot slot : {2u, 1u, 0u}) heap->insert_again(slot, 1.0);
    EXPECT_EQ(order_of(*heap), (std::vector<Slot>{5, 0, 1, 2, 3, 4})) << "the priority comes first";

    const std::vector<std::byte> state = state_of(*heap);
    const std::unique_ptr<Selector> restored = make(is_min);
    ByteReader in(state);
    const std::vector<std::uint8_t> is_in(6, 1);
    ASSERT_TRUE(restored->restore(in, SlotChecks(is_in)).ok());
    EXPECT_EQ(state_of(*restored), state);
    for (const Slot slot : {3u, 0u}) {
      restored->erase(slot);
      restored->insert_again(slot, 1.0);
    }
    EXPECT_EQ(order_of(*restored), (std::vector<Slot>{5, 0, 3, 1, 2, 4}));
  }
}

// Checkpoints of earlier versions, whose times begin at 1.
TEST(HeapSelector, ItemsReturnBeforeEqualsOfAnOldCheckpoint) {
  std::vector<std::byte> state;
  ByteWriter out(state);
  out.u64(2).u64(2);
  for (const Slot slot : {0u, 1u}) out.u32(slot).u64(slot + 1).f64(1.0);
  MinHeap heap;
  ByteReader in(state);
  ASSERT_TRUE(heap.restore(in, SlotChecks(std::vector<std::uint8_t>{1, 1})).ok());
  for (const Slot slot : {4u, 3u, 2u}) heap.insert_again(slot, 1.0);
  heap.insert(5, 1.0);
  EXPECT_EQ(order_of(heap), (std::vector<Slot>{2, 3, 4, 0, 1, 5}));
}

}  // namespace
}  // namespace reverie::testing
