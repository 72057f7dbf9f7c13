// Replay buffers that are saved in separate folders. python/reverie/replay_save_test.py tests what
// each kind of buffer gives afterwards.
#include "reverie/learn/saved_replay.h"

#include <array>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/checkpoint/checkpointer.h"
#include "reverie/sim/file_system.h"
#include "tests/support/hooked_file_system.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

// A buffer whose observations and actions are single numbers.
struct SavedBuffer {
  explicit SavedBuffer(TransitionOptions given = {.capacity = 60, .n_step = 2},
                       std::size_t shards = 1)
      : options(given) {
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Uniform", {{"seed", std::int64_t{1}}}};
    tables = ReplayShards::split(table, shards).value();
    service = LocalService::open(tables, {}).value();
  }
  void open() {
    buffer = ReplayBuffer::open(service, tables, options, {{"", DType::kFloat32, {}}},
                                {{"", DType::kInt64, {}}}, 1)
                 .value();
  }
  void add(int begin, int end) const {
    for (int i = begin; i < end; ++i) {
      const std::array<float, 1> obs{static_cast<float>(i)};
      const std::array<float, 1> next_obs{static_cast<float>(i + 1)};
      const std::array<std::int64_t, 1> action{i};
      const std::array<float, 1> reward{1};
      const std::array<std::uint8_t, 1> over{static_cast<std::uint8_t>(i % 7 == 6)};
      const std::array<std::uint8_t, 1> none{};
      const TensorView obs_view{DType::kFloat32, {}, std::as_bytes(std::span(obs))};
      const TensorView next_view{DType::kFloat32, {}, std::as_bytes(std::span(next_obs))};
      const TensorView action_view{DType::kInt64, {}, std::as_bytes(std::span(action))};
      const Status status = buffer->add(
          {{&obs_view, 1}, {&action_view, 1}, {&next_view, 1}, reward, over, none, {}, false});
      ASSERT_TRUE(status.ok()) << status.to_string();
    }
  }
  // The actions of all items of a table, oldest first.
  std::vector<std::int64_t> actions(const std::string& table = "t") const {
    const SampleBatch items = service->table(table).value()->read(0, 1000);
    const ReplayBatchLayout layout(buffer->plan(), items.size());
    std::vector<Buffer> arrays = layout.allocate(Allocator::heap()).value();
    std::vector<std::byte*> places;
    for (Buffer& array : arrays) places.push_back(array.data());
    const Status status = buffer->gather(items.trajectories(), layout.targets(places).transitions);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto* const begin = reinterpret_cast<const std::int64_t*>(places[1]);
    return {begin, begin + items.size()};
  }

  // The actions of all items, table after table.
  std::vector<std::int64_t> all_actions() const {
    std::vector<std::int64_t> all;
    for (const TableOptions& table : tables) {
      for (const std::int64_t action : actions(table.name)) all.push_back(action);
    }
    return all;
  }

  TransitionOptions options;
  std::vector<TableOptions> tables;
  std::shared_ptr<LocalService> service;
  std::shared_ptr<ReplayBuffer> buffer;
};

class SavedReplayTest : public ::testing::Test {
 protected:
  SavedReplayTest() {
    saved_.open();
    saved_.add(0, 40);
    settings_.beta = 0.4;
    settings_.weighs_over_buffer = true;
    settings_.update_count = 17;
    settings_.structures = {"*", "{}", {"hint"}};
  }
  std::string save() {
    const auto folder = save_replay(files_, "/kept", *saved_.service, *saved_.buffer, settings_);
    EXPECT_TRUE(folder.ok()) << folder.status().to_string();
    return *folder;
  }

  sim::FileSystem files_{1};
  SavedBuffer saved_;
  ReplaySettings settings_;
};

TEST_F(SavedReplayTest, TheNewestCheckpointHoldsItsSettings) {
  save();
  settings_.update_count = 18;
  settings_.attached = "the weights";
  const std::string folder = save();
  const SavedReplay found = find_saved_replay(files_, "/kept").value();
  EXPECT_EQ(found.folder, folder);
  EXPECT_EQ(found.settings, settings_);
  EXPECT_EQ(found.plan, ReplayPlan::of(saved_.buffer->plan()));
}

TEST_F(SavedReplayTest, ACheckpointThatIsReplacedWhileItIsReadGivesWayToTheNext) {
  save();
  testing::HookedFileSystem files(files_);
  int saves = 2;
  files.before_open = [&] {
    if (saves > 0) {
      --saves;
      ++settings_.update_count;
      save();
    }
  };
  const Result<SavedReplay> found = find_saved_replay(files, "/kept");
  ASSERT_TRUE(found.ok()) << found.status().to_string();
  EXPECT_EQ(found->settings.update_count, 19u);
  EXPECT_EQ(saves, 0);
}

TEST_F(SavedReplayTest, ALoadedBufferContinuesLikeTheSavedOne) {
  const std::string folder = save();
  SavedBuffer loaded;
  ReplaySettings settings;
  const auto buffer = load_replay(files_, folder, loaded.service, "t", loaded.options, 1, settings);
  ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
  loaded.buffer = *buffer;
  EXPECT_EQ(settings, settings_);
  EXPECT_EQ(loaded.actions(), saved_.actions());
  for (SavedBuffer* const each : {&saved_, &loaded}) each->add(40, 60);
  EXPECT_EQ(loaded.actions(), saved_.actions());
  EXPECT_EQ(loaded.buffer->counts().steps, 60);
}

TEST_F(SavedReplayTest, DifferentOptionsAreRefused) {
  const std::string folder = save();
  SavedBuffer other({.capacity = 60, .n_step = 3});
  ReplaySettings settings;
  const Status status =
      load_replay(files_, folder, other.service, "t", other.options, 1, settings).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("checkpoint '" + folder + "'"), std::string::npos)
      << status.message();
}

TEST_F(SavedReplayTest, ABufferOfSeveralTablesContinuesLikeTheSavedOne) {
  constexpr TransitionOptions kOptions{.capacity = 60, .n_step = 2};
  SavedBuffer saved(kOptions, 3);
  saved.open();
  saved.add(0, 40);
  const auto folder = save_replay(files_, "/several", *saved.service, *saved.buffer, settings_);
  ASSERT_TRUE(folder.ok()) << folder.status().to_string();
  EXPECT_EQ(find_saved_replay(files_, "/several").value().table_count, 3u);
  SavedBuffer loaded(kOptions, 3);
  ReplaySettings settings;
  const auto buffer =
      load_replay(files_, *folder, loaded.service, loaded.tables, loaded.options, 1, settings);
  ASSERT_TRUE(buffer.ok()) << buffer.status().to_string();
  loaded.buffer = *buffer;
  EXPECT_EQ(settings, settings_);
  EXPECT_EQ(loaded.all_actions(), saved.all_actions());
  EXPECT_EQ(loaded.buffer->shards().choose(0.5), saved.buffer->shards().choose(0.5));
  for (SavedBuffer* const each : {&saved, &loaded}) each->add(40, 90);
  EXPECT_EQ(loaded.all_actions(), saved.all_actions());
}

TEST_F(SavedReplayTest, OtherTablesThanTheSavedOnesAreRefused) {
  constexpr auto kInvalid = StatusCode::kInvalidArgument;
  const std::string folder = save();
  const SavedBuffer several(saved_.options, 3);
  ReplaySettings settings;
  expect_refused(
      load_replay(files_, folder, several.service, several.tables, several.options, 1, settings)
          .status(),
      kInvalid, {"checkpoint '" + folder + "'", "in 1 tables, 't'", "3 were given", "'t/2'"});
  TableOptions another = saved_.tables[0];
  another.name = "another";
  const auto service = LocalService::open({saved_.tables[0], another}, {}).value();
  const auto buffer = ReplayBuffer::open(service, "t", saved_.options, {{"", DType::kFloat32, {}}},
                                         {{"", DType::kInt64, {}}}, 1)
                          .value();
  expect_refused(save_replay(files_, "/with_another", *service, *buffer, settings_).status(),
                 kInvalid, {"2 tables", "no other table"});
}

TEST_F(SavedReplayTest, ACheckpointOfAStoreIsNotOneOfAReplayBuffer) {
  {
    const auto to = checkpoint::Checkpointer::open("/store", {.files = &files_}).value();
    ASSERT_TRUE(to->write(*saved_.service, {}).ok());
  }
  EXPECT_FALSE(find_saved_replay(files_, "/store").ok());
  EXPECT_FALSE(find_saved_replay(files_, "/nothing").ok());
}

}  // namespace
}  // namespace reverie
