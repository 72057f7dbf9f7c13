// What every file system must do when no fault occurs: the real one and the fake.
// A file system joins with one line:
//
//     INSTANTIATE_TEST_SUITE_P(Posix, FileSystemSuite, ::testing::Values(&open_posix));
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/os/file_system.h"

namespace reverie {

// A file system, and an empty folder in it, as an absolute path.
struct FileSystemCase {
  FileSystem* files;
  std::shared_ptr<void> owner;  // cleans up when it is destroyed; may be null
  std::string folder;
};

using OpenFileSystem = FileSystemCase (*)();

class FileSystemSuite : public ::testing::TestWithParam<OpenFileSystem> {
 protected:
  static std::vector<std::byte> bytes_of(std::string_view text) {
    const auto* const begin = reinterpret_cast<const std::byte*>(text.data());
    return {begin, begin + text.size()};
  }
  std::string at(std::string_view name) const { return join_path(case_.folder, name); }
  FileSystem& files() const { return *case_.files; }

  void write(const std::string& path, std::string_view text) const {
    auto file = files().create(path);
    ASSERT_TRUE(file.ok()) << file.status().to_string();
    ASSERT_TRUE((*file)->append(bytes_of(text)).ok());
    ASSERT_TRUE((*file)->sync().ok());
  }
  std::string read(const std::string& path) const {
    auto file = files().open(path);
    if (!file.ok()) return file.status().to_string();
    std::string text((*file)->size_bytes(), ' ');
    const std::span<char> out(text);
    const Status status = (*file)->read_at(0, std::as_writable_bytes(out));
    return status.ok() ? text : status.to_string();
  }

  const FileSystemCase case_ = GetParam()();
};

TEST_P(FileSystemSuite, ReadsWhatWasAppendedAndWrittenInPlace) {
  auto file = files().create(at("f")).value();
  EXPECT_TRUE(file->append(bytes_of("hello ")).ok());
  EXPECT_TRUE(file->append(bytes_of("there")).ok());
  EXPECT_TRUE(file->write_at(0, bytes_of("J")).ok());
  EXPECT_TRUE(file->sync().ok());
  EXPECT_EQ(read(at("f")), "Jello there");
  file = files().open_to_append(at("f")).value();
  EXPECT_TRUE(file->append(bytes_of("!")).ok());
  EXPECT_EQ(read(at("f")), "Jello there!");
  EXPECT_EQ(files().map(at("f")).value()->bytes().size(), 12u);
  EXPECT_EQ(files().map(at("f")).value()->bytes()[11], std::byte{'!'});
  std::byte beyond[2];
  EXPECT_EQ(files().open(at("f")).value()->read_at(11, beyond).code(), StatusCode::kDataLoss);
}

TEST_P(FileSystemSuite, WritesToSharedMemoryReachTheFile) {
  auto shared = files().create_shared(at("s"), 10'000).value();
  ASSERT_EQ(shared->bytes().size(), 10'000u);
  EXPECT_EQ(shared->bytes()[9'999], std::byte{0});
  shared->bytes()[9'999] = std::byte{'x'};
  EXPECT_EQ(read(at("s")).back(), 'x');
  shared->bytes()[0] = std::byte{'y'};
  EXPECT_TRUE(files().sync_file(at("s")).ok());
  shared.reset();
  EXPECT_EQ(read(at("s")).front(), 'y');
  EXPECT_EQ(files().create_shared(at("s"), 10).status().code(), StatusCode::kAlreadyExists);
}

TEST_P(FileSystemSuite, ReportsTheKindOfAPath) {
  write(at("f"), "x");
  ASSERT_TRUE(files().create_folder(at("d")).ok());
  EXPECT_EQ(files().kind(at("f")).value(), PathKind::kFile);
  EXPECT_EQ(files().kind(at("d")).value(), PathKind::kFolder);
  EXPECT_EQ(files().kind(at("none")).value(), PathKind::kNothing);
  EXPECT_EQ(files().kind(at("f/below")).value(), PathKind::kNothing);
  EXPECT_EQ(files().list(case_.folder).value(), (std::vector<std::string>{"d", "f"}));
}

TEST_P(FileSystemSuite, ARenameDoesNotReplaceAnExistingNameByDefault) {
  write(at("a"), "a");
  write(at("b"), "b");
  EXPECT_EQ(durable_rename(files(), at("a"), at("b")).code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(read(at("b")), "b");
  EXPECT_TRUE(durable_rename(files(), at("a"), at("b"), IfThere::kReplace).ok());
  EXPECT_EQ(read(at("b")), "a");
  EXPECT_EQ(files().list(case_.folder).value(), std::vector<std::string>{"b"});
}

TEST_P(FileSystemSuite, AFolderIsPublishedWithItsContent) {
  ASSERT_TRUE(create_folders(files(), at("one/two")).ok());
  write(at("one/two/f"), "f");
  EXPECT_TRUE(durable_rename(files(), at("one/two"), at("three")).ok());
  EXPECT_EQ(read(at("three/f")), "f");
  ASSERT_TRUE(files().create_folder(at("one/two")).ok());
  EXPECT_FALSE(durable_rename(files(), at("one/two"), at("three")).ok());
  EXPECT_EQ(read(at("three/f")), "f");
}

TEST_P(FileSystemSuite, ASecondNameOutlivesTheFirst) {
  write(at("first"), "both");
  ASSERT_TRUE(files().link(at("first"), at("second")).ok());
  EXPECT_TRUE(files().remove_file(at("first")).ok());
  EXPECT_EQ(read(at("second")), "both");
  EXPECT_EQ(files().kind(at("first")).value(), PathKind::kNothing);
}

TEST_P(FileSystemSuite, ANameCanBeLockedOnlyOnceAtATime) {
  auto held = files().lock(at("lock")).value();
  const auto second = files().lock(at("lock"));
  EXPECT_EQ(second.status().code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(second.status().message().find("lock"), std::string::npos);
  held.reset();
  EXPECT_TRUE(files().lock(at("lock")).ok());
}

TEST_P(FileSystemSuite, ErrorsHaveACodeAndNameThePath) {
  write(at("f"), "x");
  EXPECT_EQ(files().create(at("f")).status().code(), StatusCode::kAlreadyExists);
  EXPECT_EQ(files().open(at("none")).status().code(), StatusCode::kNotFound);
  EXPECT_NE(files().open(at("none")).status().message().find("none"), std::string::npos);
  EXPECT_EQ(files().create(at("no/f")).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(files().create(at("f/below")).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(files().open(case_.folder).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(create_folders(files(), at("f")).code(), StatusCode::kInvalidArgument);
  ASSERT_TRUE(files().create_folder(at("d")).ok());
  write(at("d/f"), "x");
  EXPECT_EQ(files().remove_folder(at("d")).code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(files().remove_file(at("d/f")).ok());
  EXPECT_TRUE(files().remove_folder(at("d")).ok());
}

}  // namespace reverie
