// The plugins of examples/cc, loaded the way users load them.
#include "reverie/base/plugin.h"

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/env/native_registry.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/blocking.h"
#include "tests/examples_dir.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::make_item;
using testing::table_options;

std::string plugin(const std::string& name) {
  return std::string(REVERIE_EXAMPLES_DIR) + "/" + name + ".so";
}

Status load(const std::string& path, ComponentRegistry& registry) {
  PluginHost host;
  host.offer(registry);
  return load_plugin(path, host);
}

class Plugin : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(load(plugin("plugin_selector"), registry_), Status());
    ASSERT_EQ(load(plugin("plugin_extension"), registry_), Status());
  }

  std::shared_ptr<LocalService> open(ComponentSpec sampler, std::vector<ComponentSpec> extensions) {
    TableOptions options = table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1));
    options.sampler = std::move(sampler);
    options.extensions = std::move(extensions);
    StoreOptions store;
    store.registry = &registry_;
    return LocalService::open({options}, store).value();
  }

  static void insert(LocalService& service, ItemKey key, double priority) {
    Item item = make_item(key, priority);
    ASSERT_EQ(insert_and_wait(service, {"t", {&item, 1}}).status, Status());
  }
  static SampleBatch sample(LocalService& service, std::size_t count, bool distinct = false) {
    SampleRequest request;
    request.table = "t";
    request.count = count;
    request.min_count = count;
    request.distinct = distinct;
    SampleResult result = sample_and_wait(service, std::move(request));
    EXPECT_EQ(result.status, Status());
    return std::move(result.batch);
  }

  Registry registry_;
};

TEST_F(Plugin, ItsSelectorDrawsItemsAsOftenAsItsProbabilitiesSay) {
  const auto service = open({"Combined", {{"newest_share", 0.2}, {"seed", std::int64_t{7}}}}, {});
  for (ItemKey key = 1; key <= 5; ++key) insert(*service, key, 1.0);
  constexpr std::size_t kDraws = 100'000;
  const SampleBatch batch = sample(*service, kDraws);
  std::map<ItemKey, double> counts;
  for (std::size_t i = 0; i < kDraws; ++i) {
    ++counts[batch.keys()[i]];
    EXPECT_DOUBLE_EQ(batch.probabilities()[i], batch.keys()[i] == 5 ? 0.36 : 0.16);
  }
  double chi_square = 0;
  for (const auto& [key, count] : counts) {
    const double expected = kDraws * (key == 5 ? 0.36 : 0.16);
    chi_square += (count - expected) * (count - expected) / expected;
  }
  EXPECT_EQ(counts.size(), 5u);
  EXPECT_LT(chi_square, 18.5);  // 4 degrees of freedom: exceeded once in 1000 runs
}

TEST_F(Plugin, ItsSelectorDrawsDistinctItemsNewestFirstIfTheNewestHasAll) {
  const auto service = open({"Combined", {{"newest_share", 1.0}}}, {});
  for (ItemKey key = 1; key <= 9; ++key) insert(*service, key, 1.0);
  const SampleBatch batch = sample(*service, 9, /*distinct=*/true);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(batch.keys()[i], 9 - i);
    // The whole table is in the batch, so each item has the same probability.
    EXPECT_DOUBLE_EQ(batch.probabilities()[i], 1.0 / 9);
  }
}

// The model: two consecutive draws, with the first item removed before the second.
TEST_F(Plugin, ItsSelectorDrawsDistinctItemsAsIfEarlierOnesWereRemoved) {
  constexpr double kShare = 0.5;
  const auto service =
      open({"Combined", {{"newest_share", kShare}, {"seed", std::int64_t{3}}}}, {});
  for (ItemKey key = 1; key <= 3; ++key) insert(*service, key, 1.0);
  const auto chance = [&](std::size_t count, bool is_newest) {
    return (1 - kShare) / static_cast<double>(count) + (is_newest ? kShare : 0);
  };
  constexpr int kDraws = 30'000;
  std::map<std::pair<ItemKey, ItemKey>, double> counts;
  for (int i = 0; i < kDraws; ++i) {
    const SampleBatch batch = sample(*service, 2, /*distinct=*/true);
    ++counts[{batch.keys()[0], batch.keys()[1]}];
  }
  double chi_square = 0;
  for (ItemKey first = 1; first <= 3; ++first) {
    for (ItemKey second = 1; second <= 3; ++second) {
      if (first == second) continue;
      const ItemKey newest_left = first == 3 ? 2 : 3;
      const double expected = kDraws * chance(3, first == 3) * chance(2, second == newest_left);
      const double excess = counts[{first, second}] - expected;
      chi_square += excess * excess / expected;
    }
  }
  EXPECT_EQ(counts.size(), 6u);
  EXPECT_LT(chi_square, 20.5);  // 5 degrees of freedom: exceeded once in 1000 runs
}

TEST_F(Plugin, ItsSelectorForgetsTheNewestWhenItIsDeleted) {
  const auto service = open({"Combined", {{"newest_share", 1.0}}}, {});
  for (ItemKey key = 1; key <= 3; ++key) insert(*service, key, 1.0);
  const ItemKey newest = 3;
  MutateRequest request;
  request.table = "t";
  request.deletes = {&newest, 1};
  ASSERT_EQ(mutate_and_wait(*service, request).deleted, 1u);
  EXPECT_EQ(sample(*service, 1).keys()[0], 2u);
}

TEST_F(Plugin, ItsExtensionChangesPrioritiesAndReportsFigures) {
  const auto service = open({"MaxHeap", {}}, {{"SampleDecay", {{"factor", 0.25}}}});
  insert(*service, 1, 8.0);
  insert(*service, 2, 4.0);
  EXPECT_EQ(sample(*service, 1).keys()[0], 1u);  // 8 becomes 2
  EXPECT_EQ(sample(*service, 1).keys()[0], 2u);  // 4 becomes 1
  EXPECT_EQ(sample(*service, 1).keys()[0], 1u);  // 2 becomes 0.5
  const std::vector<ItemKey> keys = {1, 2};
  EXPECT_EQ(lookup_and_wait(*service, {"t", keys}).priorities, (std::vector<double>{0.5, 1.0}));
  Table& table = *service->table("t").value();
  EXPECT_EQ(table.extension_summary(0),
            (std::map<std::string, double>{{"decays", 3.0}, {"priority_taken", 10.5}}));
  ASSERT_EQ(reset_and_wait(*service, "t"), Status());
  EXPECT_EQ(table.extension_summary(0),
            (std::map<std::string, double>{{"decays", 0.0}, {"priority_taken", 0.0}}));
}

TEST_F(Plugin, ItsComponentsRefuseOptionsOutsideTheirBounds) {
  expect_refused(registry_.make_selector({"Combined", {{"newest_share", 1.5}}}).status(),
                 StatusCode::kInvalidArgument, {"newest_share is 1.5", "[0, 1]"});
  expect_refused(registry_.make_selector({"Combined", {{"share", 0.5}}}).status(),
                 StatusCode::kInvalidArgument, {"Combined", "share"});
  expect_refused(registry_.make_extension({"SampleDecay", {{"factor", 0.0}}}).status(),
                 StatusCode::kInvalidArgument, {"factor is 0", "(0, 1]"});
}

TEST_F(Plugin, LoadingItTwiceIsRefusedBecauseItsNamesAreTaken) {
  expect_refused(load(plugin("plugin_selector"), registry_), StatusCode::kAlreadyExists,
                 {"plugin_selector.so", "Combined"});
}

TEST(LoadPlugin, OneProgramMayAcceptComponentsOfSeveralKinds) {
  Registry registry;
  NativeRegistry environments;
  PluginHost host;
  host.offer<ComponentRegistry>(registry);
  host.offer<NativeEnvAdder>(environments);
  EXPECT_EQ(load_plugin(plugin("plugin_selector"), host), Status());
  EXPECT_EQ(load_plugin(plugin("plugin_env"), host), Status());
  EXPECT_TRUE(environments.make("Catch-v0", {}, 0).ok());
}

TEST(LoadPlugin, RefusesComponentsThatTheProgramDoesNotAccept) {
  Registry registry;
  expect_refused(load(plugin("plugin_env"), registry), StatusCode::kFailedPrecondition,
                 {"plugin_env.so", "it adds environments"});
}

TEST(LoadPlugin, RefusesAMissingFile) {
  Registry registry;
  expect_refused(load("/nowhere/plugin.so", registry), StatusCode::kNotFound,
                 {"/nowhere/plugin.so", "cannot be loaded"});
}

TEST(LoadPlugin, RefusesALibraryThatIsNotAPlugin) {
  Registry registry;
  expect_refused(load("libm.so.6", registry), StatusCode::kFailedPrecondition,
                 {"libm.so.6", "not a plugin", "REVERIE_PLUGIN"});
}

TEST(LoadPlugin, RefusesAPluginOfAnotherVersionBeforeRunningItsCode) {
  Registry registry;
  expect_refused(load(plugin("stale_plugin"), registry), StatusCode::kFailedPrecondition,
                 {"stale_plugin.so", "'reverie-plugin-0'", kPluginAbi, "build it again"});
}

}  // namespace
}  // namespace reverie
