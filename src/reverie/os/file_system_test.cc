#include "reverie/os/file_system.h"

#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace reverie
