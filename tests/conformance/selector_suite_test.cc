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

}  // namespace
}  // namespace reverie::testing
