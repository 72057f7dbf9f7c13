// Replay buffers that are saved in separate folders. python/reverie/replay_save_test.py tests what
// each kind of buffer gives afterwards.
#include "reverie/learn/saved_replay.h"

#include <array>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/checkpoint/checkpointer.h"
#include "reverie/sim/file_system.h"

namespace reverie {
namespace {

// A buffer whose observations and actions are single numbers.
struct SavedBuffer {
  explicit SavedBuffer(TransitionOptions given = {.capacity = 60, .n_step = 2}) : options(given) {
    TableOptions table = ReplayBuffer::table_options(options, "t");
    table.sampler = {"Uniform", {{"seed", std::int64_t{1}}}};
    service = LocalService::open({table}, {}).value();
  }
  void open() {
    buffer = ReplayBuffer::open(service, "t", options, {{"", DType::kFloat32, {}}},
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
  // The actions of all items, oldest first.
  std::vector<std::int64_t> actions() const {
    const SampleBatch items = service->table("t").value()->read(0, 1000);
    const ReplayBatchLayout layout(buffer->plan(), items.size());
    std::vector<Buffer> arrays = layout.allocate(Allocator::heap()).value();
    std::vector<std::byte*> places;
    for (Buffer& array : arrays) places.push_back(array.data());
    const Status status = buffer->gather(items.trajectories(), layout.targets(places).transitions);
    EXPECT_TRUE(status.ok()) << status.to_string();
    const auto* const begin = reinterpret_cast<const std::int64_t*>(places[1]);
    return {begin, begin + items.size()};
  }

  TransitionOptions options;
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
