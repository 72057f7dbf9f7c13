#include "reverie/sim/file_system.h"

#include <algorithm>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace reverie::sim {
namespace {

std::vector<std::byte> some(std::size_t size, std::byte value) {
  return std::vector<std::byte>(size, value);
}

TEST(SimFileSystem, AnyPartOfUnsyncedDataMayBeLost) {
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    FileSystem files(seed);
    auto file = files.create("/f").value();
    ASSERT_TRUE(file->append(some(2, std::byte{'a'})).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(files.sync_folder("/").ok());
    ASSERT_TRUE(file->append(some(2, std::byte{'b'})).ok());
    ASSERT_TRUE(file->append(some(1, std::byte{'c'})).ok());
    files.restart();
    const auto content = files.content("/").at("/f");
    ASSERT_GE(content.size(), 2u);
    EXPECT_EQ(content[0], std::byte{'a'});
    EXPECT_EQ(content[1], std::byte{'a'});
    outcomes.insert(std::string(reinterpret_cast<const char*>(content.data()), content.size()));
    EXPECT_FALSE(file->append(some(1, std::byte{'d'})).ok());  // it was opened before the restart
  }
  EXPECT_TRUE(outcomes.contains("aa"));
  EXPECT_TRUE(outcomes.contains("aabbc"));
  EXPECT_TRUE(outcomes.contains("aab"));
  EXPECT_TRUE(outcomes.contains(std::string("aa\0\0c", 5)));  // the last write without those before
}

TEST(SimFileSystem, SharedMemoryOutlivesAKillAndLosesSectorsInAPowerCut) {
  std::set<int> lost;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    FileSystem files(seed);
    auto shared = files.create_shared("/s", 2'000).value();
    ASSERT_TRUE(files.sync_folder("/").ok());
    std::ranges::fill(shared->bytes(), std::byte{'a'});
    files.stop();
    std::ranges::fill(shared->bytes(), std::byte{'b'});  // after the kill
    files.restart(FileSystem::End::kKill);
    EXPECT_EQ(files.content("/").at("/s"), some(2'000, std::byte{'a'}));
    files.restart();
    const auto content = files.content("/").at("/s");
    ASSERT_EQ(content.size(), 2'000u);
    const auto at = std::ranges::count(content, std::byte{0});
    EXPECT_EQ(at % 512 == 0 || at % 512 == 2'000 % 512, true) << at;
    lost.insert(static_cast<int>(at));
  }
  EXPECT_EQ(lost.size(), 8u);  // any number of three sectors, with or without the partial one
}

TEST(SimFileSystem, NamesAppearAndVanishInAnyOrderUntilTheirFolderIsSynced) {
  std::set<std::set<std::string>> outcomes;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    FileSystem files(seed);
    (void)files.create("/kept");
    ASSERT_TRUE(files.sync_folder("/").ok());
    (void)files.create("/one");
    (void)files.create("/two");
    ASSERT_TRUE(files.remove_file("/kept").ok());
    files.restart();
    std::set<std::string> names;
    for (const auto& [path, bytes] : files.content("/")) names.insert(path);
    outcomes.insert(names);
  }
  EXPECT_EQ(outcomes.size(), 8u);  // each of three changes may be lost
}

TEST(SimFileSystem, ARenameIsAtomic) {
  int there = 0;
  for (std::uint64_t seed = 0; seed < 64; ++seed) {
    FileSystem files(seed);
    ASSERT_TRUE(files.create("/temporary").value()->append(some(9, std::byte{1})).ok());
    ASSERT_TRUE(files.sync_folder("/").ok());
    files.stop_at(files.calls() + 3);  // in the rename, after a look-up and the sync of the file
    EXPECT_EQ(durable_rename(files, "/temporary", "/name").code(), StatusCode::kUnavailable);
    files.restart();
    const auto content = files.content("/");
    ASSERT_EQ(content.size(), 1u);
    EXPECT_EQ(content.begin()->second, some(9, std::byte{1}));
    there += content.contains("/name") ? 1 : 0;
  }
  EXPECT_GT(there, 4);
  EXPECT_LT(there, 60);
}

TEST(SimFileSystem, ACallAfterAFailedOneSucceeds) {
  FileSystem files(1);
  auto file = files.create("/f").value();
  files.fail_at(2, resource_exhausted("no space"));
  files.fail_at(4, data_loss("the device failed"));
  EXPECT_EQ(file->append(some(100, std::byte{1})).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(file->append(some(1, std::byte{1})).ok());
  EXPECT_EQ(file->sync().code(), StatusCode::kDataLoss);
  // A failed sync is not repeated.
  EXPECT_EQ(file->sync().code(), StatusCode::kDataLoss);
  EXPECT_EQ(file->append(some(1, std::byte{1})).code(), StatusCode::kDataLoss);
  EXPECT_EQ(files.calls(), 4);
}

TEST(SimFileSystem, ASyncAfterAFailedOneSucceedsWithoutWhatThatOneDropped) {
  std::set<std::string> outcomes;
  for (std::uint64_t seed = 0; seed < 32; ++seed) {
    FileSystem files(seed);
    auto file = files.create("/f").value();
    ASSERT_TRUE(files.sync_folder("/").ok());
    ASSERT_TRUE(file->append(some(1, std::byte{'a'})).ok());
    ASSERT_TRUE(file->sync().ok());
    ASSERT_TRUE(file->append(some(1, std::byte{'b'})).ok());
    files.fail_at(files.calls() + 1, data_loss("the device failed"));
    ASSERT_FALSE(file->sync().ok());
    files.restart(FileSystem::End::kKill);
    EXPECT_EQ(files.content("/").at("/f").size(), 2u) << "programs still read it";
    ASSERT_TRUE(files.open_to_append("/f").value()->append(some(1, std::byte{'c'})).ok());
    ASSERT_TRUE(files.sync_file("/f").ok());
    files.restart();
    const auto content = files.content("/").at("/f");
    outcomes.insert(std::string(reinterpret_cast<const char*>(content.data()), content.size()));
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{"abc", std::string("a\0c", 3)}));
}

TEST(SimFileSystem, TheSameSeedGivesTheSameTrace) {
  const auto run = [](std::uint64_t seed) {
    FileSystem files(seed);
    auto file = files.create("/f").value();
    files.stop_at(3);
    (void)file->append(some(100, std::byte{1}));
    (void)file->append(some(100, std::byte{2}));
    files.restart();
    return std::pair(files.trace(), files.content("/"));
  };
  EXPECT_EQ(run(5), run(5));
  std::set<std::size_t> sizes;
  for (std::uint64_t seed = 0; seed < 16; ++seed) {
    for (const auto& [path, bytes] : run(seed).second) sizes.insert(bytes.size());
  }
  EXPECT_GT(sizes.size(), 3u);
}

TEST(SimFileSystem, WritesFailWhenTheDiskIsFull) {
  FileSystem files(1);
  files.set_disk_bytes(150);
  auto file = files.create("/f").value();
  EXPECT_TRUE(file->append(some(100, std::byte{1})).ok());
  EXPECT_EQ(file->append(some(100, std::byte{1})).code(), StatusCode::kResourceExhausted);
  EXPECT_TRUE(file->append(some(50, std::byte{1})).ok());
}

}  // namespace
}  // namespace reverie::sim
