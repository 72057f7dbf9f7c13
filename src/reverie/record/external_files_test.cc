#include "reverie/record/external_files.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace reverie {
namespace {

namespace fs = std::filesystem;

const TensorSpec kExternalRow{"x", DType::kUInt8, {4}};

class FileRootTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(root_ / "deep");
    write(root_ / "rows", 40);
    write(root_ / "deep" / "rows", 40);
    write(outer_ / "secret", 40);
    files_ = FileRoot::open(root_.string()).value();
    if (read("rows", 0, 40, 0, 1).code() == StatusCode::kUnimplemented) {
      GTEST_SKIP() << "there is no openat2, as under qemu";
    }
  }
  void TearDown() override { fs::remove_all(outer_); }

  static void write(const fs::path& path, int size) {
    std::string bytes(static_cast<std::size_t>(size), '\0');
    std::iota(bytes.begin(), bytes.end(), '\0');
    std::ofstream(path, std::ios::binary) << bytes;
  }
  // Reads `count` rows of 4 bytes, from row `first` of the part of `file` at `offset`.
  Status read(const std::string& file, std::uint64_t offset, std::uint64_t size,
              std::uint32_t first, std::uint32_t count) {
    out_.assign(std::size_t{4} * count, std::byte{0xee});
    const ExternalRead one{{file, offset, size, 0}, &kExternalRow, first, count, out_};
    return files_->read({&one, 1});
  }

  static fs::path made_folder() {
    std::string folder = ::testing::TempDir() + "external_files_XXXXXX";
    EXPECT_NE(::mkdtemp(folder.data()), nullptr);
    return folder;
  }

  const fs::path outer_ = made_folder();
  const fs::path root_ = outer_ / "root";
  std::shared_ptr<FileRoot> files_;
  std::vector<std::byte> out_;
};

TEST_F(FileRootTest, ReadsOnlyTheRequestedRows) {
  ASSERT_TRUE(read("deep/rows", 8, 32, 2, 3).ok());
  for (std::size_t i = 0; i < out_.size(); ++i) {
    EXPECT_EQ(out_[i], static_cast<std::byte>(8 + 8 + i));
  }
}

TEST_F(FileRootTest, ReadsManyRowsOfSeveralFilesInAnyOrder) {
  std::vector<std::vector<std::byte>> outs(20, std::vector<std::byte>(4));
  std::vector<ExternalRead> reads;
  for (std::uint32_t i = 0; i < outs.size(); ++i) {
    const std::string file = i % 2 == 0 ? "rows" : "deep/rows";
    reads.push_back({{file, 0, 40, 0}, &kExternalRow, (i * 7) % 10, 1, outs[i]});
  }
  ASSERT_TRUE(files_->read(reads).ok());
  for (std::uint32_t i = 0; i < outs.size(); ++i) {
    EXPECT_EQ(outs[i][0], static_cast<std::byte>(4 * ((i * 7) % 10)));
  }
}

// Names that a hostile writer could put into an item must not open files outside of the folder.
TEST_F(FileRootTest, NamesThatEscapeTheFolderAreRefused) {
  fs::create_symlink(outer_ / "secret", root_ / "link");
  fs::create_symlink("../secret", root_ / "relative_link");
  fs::create_directory_symlink(outer_, root_ / "folder_link");
  for (const std::string& name :
       {std::string("../secret"), (outer_ / "secret").string(), std::string("deep/../../secret"),
        std::string("link"), std::string("relative_link"), std::string("folder_link/secret"),
        std::string("/etc/passwd"), std::string("/proc/self/environ")}) {
    const Status status = read(name, 0, 40, 0, 1);
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << name << ": " << status.message();
    EXPECT_EQ(out_[0], std::byte{0xee});
  }
}

TEST_F(FileRootTest, LinksThatStayInsideAreFollowed) {
  fs::create_symlink("deep/rows", root_ / "inside");
  EXPECT_TRUE(read("inside", 0, 40, 0, 1).ok());
}

TEST_F(FileRootTest, MissingRowsNameTheFileAndTheOffset) {
  const Status missing = read("rows2", 0, 40, 0, 1);
  EXPECT_EQ(missing.code(), StatusCode::kDataLoss);
  EXPECT_NE(missing.message().find("rows2"), std::string::npos);
  // The file ends before the rows do.
  const Status early = read("rows", 32, 40, 1, 2);
  EXPECT_EQ(early.code(), StatusCode::kDataLoss);
  EXPECT_NE(early.message().find("ends at 40"), std::string::npos) << early.message();
  // The rows are not inside of the part that the writer named.
  EXPECT_EQ(read("rows", 0, 8, 2, 1).code(), StatusCode::kDataLoss);
  EXPECT_EQ(read("rows", 0, 8, 0xffffffff, 1).code(), StatusCode::kDataLoss);
}

TEST_F(FileRootTest, NonRegularFilesAreRefusedWithoutBlocking) {
  EXPECT_EQ(read("deep", 0, 40, 0, 1).code(), StatusCode::kDataLoss);
  ASSERT_EQ(mkfifo((root_ / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(read("pipe", 0, 40, 0, 1).code(), StatusCode::kDataLoss);
}

TEST_F(FileRootTest, AMissingFolderIsUnavailableAndNotDataLoss) {
  fs::remove_all(root_);
  EXPECT_EQ(read("rows", 0, 40, 0, 1).code(), StatusCode::kUnavailable);
}

TEST(FileRoot, MustBeAnExistingFolder) {
  EXPECT_EQ(FileRoot::open("").status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(FileRoot::open("/nowhere/at/all").status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FileRoot::open("/etc/passwd").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace reverie
