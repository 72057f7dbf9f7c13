#include "reverie/os/file_system.h"

#include <algorithm>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace reverie {
namespace {

TEST(FileSystem, FindsParentPathsAndJoinsPaths) {
  EXPECT_EQ(parent_path("/a/b"), "/a");
  EXPECT_EQ(parent_path("/a/b/"), "/a");
  EXPECT_EQ(parent_path("/a"), "/");
  EXPECT_EQ(parent_path("a"), ".");
  EXPECT_EQ(parent_path("/"), "/");
  EXPECT_EQ(join_path("/a", "b"), "/a/b");
  EXPECT_EQ(join_path("/", "b"), "/b");
}

TEST(FileSystem, HostilePathsAreRefusedBeforeTheyReachTheSystem) {
  FileSystem& files = FileSystem::system();
  const std::string nul("/tmp/a\0b", 8);
  EXPECT_EQ(files.create(nul).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(files.kind("").status().code(), StatusCode::kInvalidArgument);
  const std::string longest = "/tmp/" + std::string(5'000, 'x');
  EXPECT_EQ(files.create(longest).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(files.open("/dev/null").status().code(), StatusCode::kInvalidArgument);
}

TEST(FileSystem, AFullDiskAndAReadOnlyFolderAreTypedErrors) {
  FileSystem& files = FileSystem::system();
  if (files.kind("/dev/full").value() == PathKind::kOther) {
    auto file = files.open_to_append("/dev/full");
    EXPECT_EQ(file.status().code(), StatusCode::kInvalidArgument);  // not a regular file
  }
  const auto read_only = files.create("/proc/self/nothing");
  EXPECT_FALSE(read_only.ok());
}

TEST(FileSystem, ALockBelongsToTheProcessThatTookItAndNotToItsForkedChildren) {
  const auto folder = std::filesystem::temp_directory_path() / format("reverie-lock-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  FileSystem& files = FileSystem::system();
  const std::string path = (folder / "lock").string();
  auto held = files.lock(path).value();

  const pid_t dropping = fork();
  if (dropping == 0) {
    held.reset();
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(dropping, &status, 0), dropping);
  EXPECT_FALSE(files.lock(path).ok()) << "a child has released it";

  const pid_t keeping = fork();
  if (keeping == 0) {
    while (true) pause();
  }
  held.reset();
  const auto again = files.lock(path);
  EXPECT_TRUE(again.ok()) << again.status().to_string();
  kill(keeping, SIGKILL);
  ASSERT_EQ(waitpid(keeping, &status, 0), keeping);
}

TEST(FileSystem, AFileThatIsSettledAsItIsWrittenHasAllItsBytes) {
  const auto folder = std::filesystem::temp_directory_path() / format("reverie-file-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  FileSystem& files = FileSystem::system();
  const std::string path = (folder / "file").string();
  constexpr std::size_t kPieces = 9;
  std::vector<std::byte> piece(std::size_t{5} << 20);
  auto file = files.create(path).value();
  for (std::size_t i = 0; i < kPieces; ++i) {
    std::ranges::fill(piece, static_cast<std::byte>(i));
    ASSERT_TRUE(file->append(piece).ok());
    ASSERT_TRUE(file->settle().ok());
  }
  ASSERT_TRUE(file->sync().ok());
  const auto read = files.open(path).value();
  ASSERT_EQ(read->size_bytes(), kPieces * piece.size());
  for (std::size_t i = 0; i < kPieces; ++i) {
    ASSERT_TRUE(read->read_at(i * piece.size(), piece).ok());
    EXPECT_EQ(std::ranges::count(piece, static_cast<std::byte>(i)),
              static_cast<std::ptrdiff_t>(piece.size()));
  }
}

TEST(FileSystem, ALockLeavesLinksAndFilesOfOtherProgramsUnchanged) {
  const auto folder = std::filesystem::temp_directory_path() / format("reverie-mine-{}", getpid());
  std::filesystem::create_directories(folder);
  const std::shared_ptr<void> clean(nullptr, [&](void*) { std::filesystem::remove_all(folder); });
  FileSystem& files = FileSystem::system();
  const std::string mine = (folder / "mine").string();
  const std::string path = (folder / "reverie.lock").string();
  const auto content = [](const std::string& of) {
    std::ifstream file(of);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const auto refused = [&](const std::string& why) {
    const Status status = files.lock(path).status();
    EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition) << status.to_string();
    EXPECT_NE(status.message().find("'" + path + "' is " + why), std::string::npos)
        << status.message();
  };
  // A link to an existing file, and one that leads nowhere.
  std::ofstream(mine) << "my notes";
  for (const std::string& target : {mine, (folder / "nothing").string()}) {
    std::filesystem::create_symlink(target, path);
    refused("a link");
    std::filesystem::remove(path);
  }
  EXPECT_FALSE(std::filesystem::exists(folder / "nothing"));
  std::filesystem::create_hard_link(mine, path);
  refused("a file of another program");
  EXPECT_EQ(content(mine), "my notes");
  for (const char* const other : {"12345678901", "12 34", "-1"}) {
    std::ofstream(path) << other;
    refused("a file of another program");
    EXPECT_EQ(content(path), other);
  }
  std::filesystem::remove(path);
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(files.lock(path).status().code(), StatusCode::kInvalidArgument);
  std::filesystem::remove(path);
  // What a store has left behind, and what a power cut may leave of it.
  for (const std::string& left : {std::string(), std::string("4194304"), std::string(5, '\0')}) {
    std::ofstream(path) << left;
    const auto held = files.lock(path);
    ASSERT_TRUE(held.ok()) << held.status().to_string();
    EXPECT_EQ(content(path), format("{}", getpid()));
  }
}

}  // namespace
}  // namespace reverie
