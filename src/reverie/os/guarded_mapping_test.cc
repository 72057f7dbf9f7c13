#include "reverie/os/guarded_mapping.h"

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

namespace reverie {
namespace {

// An unlinked file of `size_bytes` zeros.
class GuardedFile {
 public:
  explicit GuardedFile(std::size_t size_bytes) {
    std::string path = ::testing::TempDir() + "guarded_XXXXXX";
    fd_ = mkstemp(path.data());
    unlink(path.c_str());
    EXPECT_EQ(ftruncate(fd_, static_cast<off_t>(size_bytes)), 0);
  }
  ~GuardedFile() { close(fd_); }
  int fd() const { return fd_; }

 private:
  int fd_ = -1;
};

TEST(GuardedMapping, AWriteToMissingPagesSucceedsAndIsReported) {
  const GuardedFile file(20'000);
  const auto mapping = GuardedMapping::map(file.fd(), 20'000);
  ASSERT_NE(mapping, nullptr);
  const std::span<std::byte> bytes = mapping->bytes();
  bytes[0] = std::byte{'a'};
  bytes[19'999] = std::byte{'z'};
  EXPECT_FALSE(mapping->is_lost());
  ASSERT_EQ(ftruncate(file.fd(), 4'096), 0);
  EXPECT_EQ(bytes[0], std::byte{'a'});
  EXPECT_FALSE(mapping->is_lost());
  bytes[19'999] = std::byte{'y'};
  EXPECT_TRUE(mapping->is_lost());
  EXPECT_EQ(bytes[19'999], std::byte{'y'});
  EXPECT_EQ(bytes[19'998], std::byte{0});
  EXPECT_EQ(bytes[8'192], std::byte{0});  // a read of another page works too
  char first = 0;
  EXPECT_EQ(pread(file.fd(), &first, 1, 0), 1);
  EXPECT_EQ(first, 'a');
}

TEST(GuardedMapping, TheirNumberIsBoundedAndSlotsAreReused) {
  const GuardedFile file(4'096);
  for (int round = 0; round < 2; ++round) {
    std::vector<std::unique_ptr<GuardedMapping>> mappings;
    while (auto mapping = GuardedMapping::map(file.fd(), 4'096)) {
      EXPECT_FALSE(mapping->is_lost());
      mappings.push_back(std::move(mapping));
      ASSERT_LE(mappings.size(), GuardedMapping::kMost);
    }
    EXPECT_GT(mappings.size(), 8u);  // other code in this process may hold some
  }
  EXPECT_EQ(GuardedMapping::map(-1, 4'096), nullptr);
  EXPECT_NE(GuardedMapping::map(file.fd(), 4'096), nullptr);
}

TEST(GuardedMappingDeathTest, OtherBusErrorsStillEndTheProcess) {
  const GuardedFile file(4'096);
  const auto mapping = GuardedMapping::map(file.fd(), 4'096);
  ASSERT_NE(mapping, nullptr);
  const GuardedFile other(4'096);
  auto* const at = static_cast<volatile char*>(
      mmap(nullptr, 4'096, PROT_READ | PROT_WRITE, MAP_SHARED, other.fd(), 0));
  ASSERT_NE(at, MAP_FAILED);
  ASSERT_EQ(ftruncate(other.fd(), 0), 0);
  EXPECT_EXIT(
          *at = 1, [](int status) { return status != 0; }, "");
  munmap(const_cast<char*>(at), 4'096);
}

}  // namespace
}  // namespace reverie
