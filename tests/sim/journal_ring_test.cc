#include "reverie/durable_files/journal_ring.h"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/durable_files/section_file.h"
#include "reverie/sim/file_system.h"

namespace reverie::checkpoint {
namespace {

constexpr char kRingRoot[] = "/ring";
constexpr std::size_t kRingBytes = 5'000;

// A group of `count` records with `size` bytes in total, and its header.
std::vector<std::byte> random_group(Group& group, std::uint64_t first, std::uint32_t count,
                                    std::size_t size, Random& random) {
  std::vector<std::byte> bytes(kGroupHeaderBytes + size);
  for (std::size_t i = kGroupHeaderBytes; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>(random.next());
  }
  group = {};
  group.first = first;
  group.count = count;
  group.records = std::span(bytes).subspan(kGroupHeaderBytes);
  std::ranges::copy(group_header(group), bytes.begin());
  return bytes;
}

struct PutGroup {
  std::uint64_t file;
  std::uint64_t first;
  std::uint64_t last;
  std::vector<std::byte> bytes;
};

class JournalRingTest : public ::testing::Test {
 protected:
  JournalRingTest() {
    EXPECT_TRUE(create_folders(files_, kRingRoot).ok());
    ring_ = JournalRing::create(files_, kRingRoot, kRingBytes).value();
  }
  std::vector<std::byte> content() const {
    return files_.content(kRingRoot).at(join_path(kRingRoot, kRingName));
  }
  // Puts a random group; false if the ring has no room for it.
  bool put() {
    Group group;
    const auto count = static_cast<std::uint32_t>(1 + random_.below(4));
    std::vector<std::byte> bytes =
        random_group(group, next_, count, count + random_.below(900), random_);
    const std::uint64_t file = 1 + next_ / 100;
    if (!ring_->has_room(bytes.size())) return false;
    const auto at = ring_->put(file, group, bytes);
    EXPECT_TRUE(std::ranges::equal(at, bytes));
    next_ += count;
    model_.push_back({file, group.first, next_ - 1, std::move(bytes)});
    return true;
  }

  sim::FileSystem files_{1};
  std::unique_ptr<JournalRing> ring_;
  Random random_{7};
  std::uint64_t next_ = 1;
  std::deque<PutGroup> model_;  // groups that are not released
};

TEST_F(JournalRingTest, HoldsTheUnreleasedGroupsHoweverOftenItWraps) {
  std::size_t refused = 0;
  std::size_t most = 0;
  for (int step = 0; step < 4'000; ++step) {
    if (random_.below(3) > 0) {
      if (!put()) ++refused;
    } else if (!model_.empty()) {
      // Releasing up to the middle of a group must not free the group.
      const std::uint64_t last = model_[random_.below(model_.size())].last - random_.below(2);
      ring_->release(last);
      while (!model_.empty() && model_.front().last <= last) model_.pop_front();
    }
    if (step % 50 != 0 || model_.empty()) continue;
    const std::vector<std::byte> bytes = content();
    const auto found = groups_from(bytes, model_.front().first);
    ASSERT_GE(found.size(), model_.size());
    for (std::size_t i = 0; i < model_.size(); ++i) {
      ASSERT_EQ(found[i].file, model_[i].file);
      ASSERT_EQ(found[i].group.first, model_[i].first);
      ASSERT_TRUE(std::ranges::equal(found[i].bytes, model_[i].bytes));
    }
    most = std::max(most, model_.size());
    ASSERT_TRUE(groups_from(bytes, next_).empty());
  }
  EXPECT_GT(refused, 100u);
  EXPECT_GT(most, 8u);
}

TEST_F(JournalRingTest, AGroupLargerThanTheRingHasNoRoom) {
  EXPECT_FALSE(ring_->has_room(kRingBytes));
  EXPECT_TRUE(ring_->has_room(kRingBytes - 1));
  EXPECT_FALSE(ring_->is_due());
  EXPECT_TRUE(put());
}

TEST_F(JournalRingTest, ADamagedByteEndsItAtItsGroup) {
  while (put()) {
  }
  const std::vector<std::byte> bytes = content();
  const std::size_t whole = groups_from(bytes, 1).size();
  ASSERT_GT(whole, 4u);
  std::size_t ended = 0;
  for (int i = 0; i < 3'000; ++i) {
    std::vector<std::byte> damaged = bytes;
    const bool is_cut = random_.below(8) == 0;
    if (is_cut) {
      damaged.resize(random_.below(damaged.size()));
    } else {
      damaged[random_.below(damaged.size())] ^= static_cast<std::byte>(1 + random_.below(255));
    }
    const auto found = groups_from(damaged, 1);
    ended += found.size() < whole ? 1 : 0;
    for (std::size_t g = 0; g < found.size(); ++g) {
      ASSERT_EQ(found[g].file, model_[g].file);
      ASSERT_TRUE(std::ranges::equal(found[g].bytes, model_[g].bytes));
    }
  }
  EXPECT_GT(ended, 1'000u);
}

TEST_F(JournalRingTest, ARingOfANewerVersionIsRefused) {
  files_.flip(join_path(kRingRoot, kRingName), 8, std::byte{2});
  const Status status = finish_journal(files_, kRingRoot, 0).status();
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_NE(status.message().find("journal-ring"), std::string::npos);
}

TEST_F(JournalRingTest, AnInvalidRingHoldsNothingAndIsRemoved) {
  files_.cut(join_path(kRingRoot, kRingName), 10);
  EXPECT_TRUE(finish_journal(files_, kRingRoot, 0).ok());
  EXPECT_TRUE(remove_ring(files_, kRingRoot).ok());
  EXPECT_TRUE(files_.content(kRingRoot).empty());
}

TEST_F(JournalRingTest, GroupsNewerThanTheFilesAreWrittenToThemAndTheRingIsRemoved) {
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(put());
  // The file has the first two groups and a part of the third: its writer was killed in between.
  {
    auto file = create_journal_file(files_, kRingRoot, 1).value();
    ASSERT_TRUE(file->append(model_[0].bytes).ok());
    ASSERT_TRUE(file->append(model_[1].bytes).ok());
    ASSERT_TRUE(file->append(std::span(model_[2].bytes).first(9)).ok());
  }
  ASSERT_TRUE(finish_journal(files_, kRingRoot, 0).ok());
  ASSERT_TRUE(remove_ring(files_, kRingRoot).ok());
  std::vector<std::byte> expected = file_header(FileKind::kJournal);
  for (const PutGroup& group : model_) {
    expected.insert(expected.end(), group.bytes.begin(), group.bytes.end());
  }
  EXPECT_EQ(files_.content(kRingRoot).size(), 1u);
  EXPECT_EQ(files_.content(kRingRoot).at(join_path(kRingRoot, journal_name(1))), expected);
  files_.restart();
  EXPECT_EQ(files_.content(kRingRoot).at(join_path(kRingRoot, journal_name(1))), expected);
}

}  // namespace
}  // namespace reverie::checkpoint
