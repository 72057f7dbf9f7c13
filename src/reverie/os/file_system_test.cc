#include "reverie/os/file_system.h"

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>

#include <gtest/gtest.h>
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

}  // namespace
}  // namespace reverie
