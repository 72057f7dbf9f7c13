// Members in one process over real shared memory. group_test.cc and
// tests/python/group_shared_memory_test.py test separate processes.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "reverie/base/random.h"
#include "reverie/group/reduce_round.h"
#include "reverie/reduce/shared_rounds.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

constexpr std::size_t kWindow = std::size_t{8} << 20;

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator all("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

// All members of one membership, and the rounds that have ended on each.
class ShareMembers {
 public:
  explicit ShareMembers(std::size_t count, std::size_t window_bytes = kWindow) : ended(count) {
    auto first = ShareSegment::make(count, window_bytes);
    EXPECT_TRUE(first.ok()) << first.status().to_string();
    segments.push_back(*first);
    for (std::size_t m = 1; m < count; ++m) {
      auto segment = ShareSegment::open((*first)->offer(), m, count);
      EXPECT_TRUE(segment.ok()) << segment.status().to_string();
      segments.push_back(*segment);
    }
    for (std::size_t m = 0; m < count; ++m) {
      rounds.push_back(std::make_unique<SharedRounds>(
          segments[m], [this, m](std::vector<SharedRounds::Finished> ends) {
            MutexLock lock(mutex);
            for (auto& end : ends) ended[m].push_back(std::move(end));
          }));
    }
  }

  std::size_t size() const { return rounds.size(); }
  // Does all work there is, with the members in random order.
  void run(Random& random) {
    for (int idle = 0; idle < 64;) idle = rounds[random.below(size())]->step() ? 0 : idle + 1;
  }

  std::vector<std::shared_ptr<ShareSegment>> segments;
  Mutex mutex;
  std::vector<std::vector<SharedRounds::Finished>> ended;
  std::vector<std::unique_ptr<SharedRounds>> rounds;
};

std::shared_ptr<Buffer> share_buffer(std::size_t size_bytes) {
  auto buffer = Allocator::heap().allocate(std::max<std::size_t>(size_bytes, 64));
  EXPECT_TRUE(buffer.ok());
  return std::make_shared<Buffer>(std::move(*buffer));
}

// Random contributions of all members: any bits for any type, except for bools.
std::vector<std::vector<std::byte>> drawn(std::size_t members, std::size_t size, DType dtype,
                                          Random& random) {
  std::vector<std::vector<std::byte>> all(members, std::vector<std::byte>(size));
  for (auto& bytes : all) {
    for (std::byte& byte : bytes) {
      byte = static_cast<std::byte>(dtype == DType::kBool ? random.below(2) : random.below(256));
    }
  }
  return all;
}

std::shared_ptr<const ReduceLayout> layout_of(ReduceOp op, DType dtype, std::size_t count,
                                              std::size_t members) {
  const std::vector<std::byte> bytes(count * dtype_size_bytes(dtype));
  // Two arrays, the first of an odd size, so that pieces do not end where parts do.
  const std::size_t first = std::min<std::size_t>(count, 37);
  const ReduceLeaf leaves[] = {{"a",
                                dtype,
                                {static_cast<std::int64_t>(first)},
                                std::span(bytes).first(first * dtype_size_bytes(dtype))},
                               {"b",
                                dtype,
                                {static_cast<std::int64_t>(count - first)},
                                std::span(bytes).subspan(first * dtype_size_bytes(dtype))}};
  auto layout = ReduceLayout::make(op, leaves, members);
  EXPECT_TRUE(layout.ok()) << layout.status().to_string();
  return std::make_shared<const ReduceLayout>(std::move(*layout));
}

void load(const ReduceLayout& layout, std::span<const std::byte> bytes, std::byte* to) {
  std::vector<ReduceLeaf> leaves;
  std::size_t at = 0;
  for (const ReduceLayout::Piece& piece : layout.pieces()) {
    const std::size_t size = piece.count * dtype_size_bytes(piece.dtype);
    leaves.push_back({piece.name, piece.dtype, piece.shape, bytes.subspan(at, size)});
    at += size;
  }
  layout.load(leaves, {to, layout.size_bytes()});
}

// The result of the same round over calls.
std::vector<std::byte> over_calls(const std::shared_ptr<const ReduceLayout>& layout,
                                  const std::vector<std::vector<std::byte>>& brought) {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::vector<std::unique_ptr<ReduceRound>> rounds;
  for (std::size_t m = 0; m < brought.size(); ++m) {
    buffers.push_back(share_buffer(layout->size_bytes()));
    load(*layout, brought[m], buffers[m]->data());
    rounds.push_back(std::make_unique<ReduceRound>(layout, buffers[m], m, brought.size()));
  }
  std::deque<std::pair<std::size_t, RoundPart>> carried;
  const auto carry = [&](std::size_t from, std::vector<RoundPart> parts) {
    for (RoundPart& part : parts) carried.emplace_back(from, std::move(part));
  };
  for (std::size_t m = 0; m < rounds.size(); ++m) {
    std::vector<RoundPart> parts;
    rounds[m]->start(parts);
    carry(m, std::move(parts));
  }
  while (!carried.empty()) {
    auto [from, part] = std::move(carried.front());
    carried.pop_front();
    Payload payload;
    payload.bulk = std::move(part.bulk);
    std::vector<RoundPart> parts;
    EXPECT_TRUE(rounds[part.to]->take(from, part.is_up, part.part, std::move(payload), parts).ok());
    carry(part.to, std::move(parts));
  }
  return {buffers[0]->data(), buffers[0]->data() + layout->size_bytes()};
}

TEST(SharedRoundsTest, GiveTheSameBytesAsCallsForAllTypesAndOperations) {
  constexpr DType kTypes[] = {DType::kFloat32,  DType::kFloat64,   DType::kFloat16,
                              DType::kBFloat16, DType::kInt8,      DType::kInt64,
                              DType::kUInt16,   DType::kComplex64, DType::kBool};
  Random random(7);
  int reduced = 0;
  for (const DType dtype : kTypes) {
    for (int number = 0; number <= static_cast<int>(ReduceOp::kProduct); ++number) {
      const auto op = static_cast<ReduceOp>(number);
      if (!check_reducible(op, dtype).ok()) continue;
      const std::size_t members = 2 + random.below(6);
      // Each member reduces small arrays by itself; large ones are reduced in parts.
      const std::size_t count = reduced % 2 == 0 ? 1 + random.below(5000) : 90'000;
      const auto layout = layout_of(op, dtype, count, members);
      const auto brought = drawn(members, count * dtype_size_bytes(dtype), dtype, random);
      ShareMembers group(members);
      std::vector<std::shared_ptr<Buffer>> buffers;
      for (std::size_t m = 0; m < members; ++m) {
        buffers.push_back(share_buffer(layout->size_bytes()));
        SharedRounds::Start start{1, 99, layout, buffers[m], std::nullopt, false};
        if (random.below(2) == 0) {
          start.offset = group.rounds[m]->allocate(layout->size_bytes());
          ASSERT_TRUE(start.offset.has_value());
          load(*layout, brought[m], group.rounds[m]->at(*start.offset));
        } else {
          load(*layout, brought[m], buffers[m]->data());
        }
        group.rounds[m]->begin(start);
      }
      group.run(random);
      const std::vector<std::byte> expected = over_calls(layout, brought);
      for (std::size_t m = 0; m < members; ++m) {
        ASSERT_EQ(group.ended[m].size(), 1u);
        ASSERT_TRUE(group.ended[m][0].status.ok()) << group.ended[m][0].status.to_string();
        ASSERT_EQ(std::memcmp(buffers[m]->data(), expected.data(), expected.size()), 0)
            << reduce_op_name(op) << " of " << dtype_name(dtype) << " on member " << m;
      }
      ++reduced;
    }
  }
  EXPECT_GT(reduced, 30);
}

// The two steps within a host: all arrays to the first member, and its array to all.
TEST(SharedRoundsTest, ReduceToTheFirstMemberAndBroadcastItsArray) {
  Random random(11);
  for (const std::size_t count : {1u, 30'000u, 400'000u}) {  // small and large arrays
    ShareMembers members(3);
    const auto layout = layout_of(ReduceOp::kMean, DType::kFloat32, count, 9);  // 9 on all hosts
    std::vector<std::shared_ptr<Buffer>> buffers;
    std::vector<float> sum(count);
    for (std::size_t m = 0; m < members.size(); ++m) {
      std::vector<float> values(count);
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<float>(random.below(1000));
        sum[i] += values[i];
      }
      buffers.push_back(share_buffer(layout->size_bytes()));
      load(*layout, std::as_bytes(std::span(values)), buffers[m]->data());
    }
    const auto values_on = [&](std::size_t m) {
      std::vector<float> values(count);
      auto* to = reinterpret_cast<std::byte*>(values.data());
      for (std::size_t piece = 0; piece < layout->pieces().size(); ++piece) {
        layout->unload(piece, buffers[m]->bytes(), to);
        to += layout->pieces()[piece].count * sizeof(float);
      }
      return values;
    };
    for (const SharedStep step : {SharedStep::kToFirst, SharedStep::kFromFirst}) {
      for (std::size_t m = 0; m < members.size(); ++m) {
        SharedRounds::Start start;
        start.id = 1 + static_cast<std::uint64_t>(step);
        start.key = 100 + static_cast<std::uint64_t>(step);
        start.step = step;
        start.layout = layout;
        start.buffer = buffers[m];
        members.rounds[m]->begin(std::move(start));
      }
      members.run(random);
      for (std::size_t m = 0; m < members.size(); ++m) {
        ASSERT_EQ(members.ended[m].size(), static_cast<std::size_t>(step)) << "member " << m;
        EXPECT_TRUE(members.ended[m].back().status.ok());
        if (m == 0 || step == SharedStep::kFromFirst) {
          EXPECT_EQ(values_on(m), sum);
        }
      }
    }
  }
}

TEST(SharedRoundsTest, RunConcurrentlyInAnyOrderAndReuseTheirMemory) {
  constexpr std::size_t kMembers = 3;
  constexpr std::size_t kNames = 20;
  constexpr std::size_t kCount = 50'000;
  Random random(11);
  // Room for a few more names than are in use at a time.
  ShareMembers group(kMembers, std::size_t{16} << 20);
  const auto layout = layout_of(ReduceOp::kSum, DType::kInt64, kCount, kMembers);
  for (std::uint64_t turn = 0; turn < 10; ++turn) {
    std::vector<std::vector<std::shared_ptr<Buffer>>> buffers(kMembers);
    for (std::size_t m = 0; m < kMembers; ++m) {
      std::vector<std::size_t> order(kNames);
      std::iota(order.begin(), order.end(), 0u);
      for (std::size_t i = kNames; i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
      buffers[m].resize(kNames);
      for (const std::size_t name : order) {
        std::vector<std::int64_t> mine(kCount, static_cast<std::int64_t>(turn * 100 + name + m));
        buffers[m][name] = share_buffer(layout->size_bytes());
        load(*layout, std::as_bytes(std::span(mine)), buffers[m][name]->data());
        group.rounds[m]->begin(
            {name, 1 + turn * kNames + name, layout, buffers[m][name], std::nullopt, false});
        if (random.below(3) == 0) (void)group.rounds[random.below(kMembers)]->step();
      }
    }
    group.run(random);
    for (std::size_t m = 0; m < kMembers; ++m) {
      ASSERT_EQ(group.ended[m].size(), kNames);
      for (const auto& end : group.ended[m]) ASSERT_TRUE(end.status.ok()) << end.status.to_string();
      group.ended[m].clear();
      for (std::size_t name = 0; name < kNames; ++name) {
        std::int64_t got = 0;
        std::memcpy(&got, buffers[m][name]->data() + layout->pieces()[1].offset, sizeof(got));
        ASSERT_EQ(got, static_cast<std::int64_t>(3 * (turn * 100 + name) + 3));
      }
    }
  }
}

TEST(SharedRoundsTest, GiveNoMemberAResultWhenOneDropsOut) {
  Random random(3);
  ShareMembers group(3);
  for (const std::size_t count : {100u, 400'000u}) {
    const auto layout = layout_of(ReduceOp::kSum, DType::kInt32, count, 3);
    std::vector<std::shared_ptr<Buffer>> buffers;
    for (std::size_t m = 0; m < 3; ++m) {
      buffers.push_back(share_buffer(layout->size_bytes()));
      std::memset(buffers[m]->data(), 1, layout->size_bytes());
    }
    const auto begin = [&](std::size_t m, std::uint64_t key) {
      group.rounds[m]->begin({key, key, layout, buffers[m], std::nullopt, false});
    };
    begin(0, count);
    begin(1, count);
    group.run(random);
    group.rounds[0]->forget(count);
    begin(2, count);
    group.run(random);
    for (const auto& ended : group.ended) EXPECT_TRUE(ended.empty());
    group.rounds[1]->forget(count);
    group.rounds[2]->forget(count);
    // The memory is free for the next round with the name.
    for (std::size_t m = 0; m < 3; ++m) begin(m, count + 1);
    group.run(random);
    for (auto& ended : group.ended) {
      ASSERT_EQ(ended.size(), 1u);
      EXPECT_TRUE(ended[0].status.ok());
      ended.clear();
    }
  }
}

TEST(SharedRoundsTest, NameAMemberWithADifferentArray) {
  Random random(5);
  ShareMembers group(2);
  for (std::size_t m = 0; m < 2; ++m) {
    const auto layout = layout_of(ReduceOp::kSum, DType::kInt32, 100 + m, 2);
    auto buffer = share_buffer(layout->size_bytes());
    std::memset(buffer->data(), 0, layout->size_bytes());
    group.rounds[m]->begin({1, 1, layout, std::move(buffer), std::nullopt, false});
  }
  group.run(random);
  const auto& ended = group.ended[0].empty() ? group.ended[1] : group.ended[0];
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].differs_with, group.ended[0].empty() ? 0u : 1u);
}

TEST(SharedRoundsTest, CorruptSharedMemoryEndsOnlyTheRounds) {
  Random random(13);
  std::size_t refused = 0;
  const auto layout = layout_of(ReduceOp::kSum, DType::kFloat32, 1000, 2);
  for (int turn = 0; turn < 300; ++turn) {
    ShareMembers group(2, std::size_t{1} << 20);
    auto buffer = share_buffer(layout->size_bytes());
    std::memset(buffer->data(), 0, layout->size_bytes());
    group.rounds[0]->begin({1, 5, layout, buffer, std::nullopt, false});
    // An entry with a correct key and signature, and anything else.
    const std::uint64_t offset = random.below(2) == 0 ? random.next() : random.below(1u << 21u);
    const std::uint64_t size = random.below(2) == 0 ? layout->size_bytes() : random.next();
    const auto place = group.segments[1]->publish(5, {layout->signature_hash(), offset, size});
    ASSERT_TRUE(place.has_value());
    group.segments[1]->set_state(*place, static_cast<ShareState>(random.below(5)));
    (void)group.rounds[0]->step();
    const std::span<std::byte> window = group.segments[1]->window();
    for (int i = 0; i < 100; ++i) {
      window[random.below(window.size())] = static_cast<std::byte>(random.next());
    }
    (void)group.rounds[0]->step();
    for (const auto& end : group.ended[0]) {
      if (end.status.ok()) continue;
      EXPECT_EQ(end.status.code(), StatusCode::kDataLoss);
      ++refused;
    }
  }
  EXPECT_GT(refused, 50u);
}

TEST(SharedRoundsTest, RoundsWithoutRoomAreRefusedUntilThereIsRoom) {
  Random random(17);
  ShareMembers group(2, std::size_t{1} << 20);
  const auto layout = layout_of(ReduceOp::kSum, DType::kInt32, 150'000, 2);
  const auto begin = [&](std::size_t m, std::uint64_t key) {
    auto buffer = share_buffer(layout->size_bytes());
    std::memset(buffer->data(), 0, layout->size_bytes());
    group.rounds[m]->begin({key, key, layout, std::move(buffer), std::nullopt, false});
  };
  begin(0, 1);
  begin(0, 2);
  group.run(random);
  ASSERT_EQ(group.ended[0].size(), 1u);
  EXPECT_EQ(group.ended[0][0].status.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(group.ended[0][0].id, 2u);
  begin(1, 1);
  group.run(random);
  ASSERT_EQ(group.ended[0].size(), 2u);
  EXPECT_TRUE(group.ended[0][1].status.ok());
  begin(0, 3);
  begin(1, 3);
  group.run(random);
  ASSERT_EQ(group.ended[0].size(), 3u);
  EXPECT_TRUE(group.ended[0][2].status.ok());
}

TEST(SharedRoundsTest, AThreadThatEndsARoundWakesOthersThatWaitForIt) {
  ShareMembers all(2);
  std::vector<std::uint32_t> seen(2);  // of the bell, as each member's round ended
  std::vector<std::unique_ptr<SharedRounds>> rounds;
  for (std::size_t m = 0; m < 2; ++m) {
    rounds.push_back(std::make_unique<SharedRounds>(
        all.segments[m], [&, m](const auto&) { seen[m] = all.segments[m]->seen(); }));
  }
  // It waits for the round, and does not work on it.
  std::atomic<bool> is_waiting{false};
  std::atomic<bool> is_over{false};
  std::thread driver([&] {
    rounds[0]->drive(
        [&] {
          is_waiting.store(true);
          is_waiting.notify_all();
          is_over.wait(false);
          return true;
        },
        TimePoint::max());
  });
  is_waiting.wait(false);
  const auto layout = layout_of(ReduceOp::kSum, DType::kInt32, 100, 2);
  std::vector<std::shared_ptr<Buffer>> buffers;
  for (std::size_t m = 0; m < 2; ++m) {
    buffers.push_back(share_buffer(layout->size_bytes()));
    std::memset(buffers[m]->data(), 0, layout->size_bytes());
    rounds[m]->begin({1, 99, layout, buffers[m], std::nullopt, false});
  }
  // The bell rings after the end on the member that has a waiting thread, and only there.
  const auto end = [&](std::size_t m) {
    if (seen[m] != 0) return true;
    (void)rounds[m]->step();
    if (seen[m] == 0) return false;
    EXPECT_EQ(all.segments[m]->seen() != seen[m], m == 0) << "member " << m;
    return true;
  };
  int turns = 0;
  for (bool is_end = false; !is_end && turns < 100; ++turns) {
    is_end = end(0);
    is_end = end(1) && is_end;
  }
  EXPECT_LT(turns, 100);
  is_over.store(true);
  is_over.notify_all();
  driver.join();
}

TEST(SharedRoundsTest, AreCompletedByWaitingAndServingThreads) {
  constexpr std::size_t kMembers = 4;
  constexpr std::uint64_t kRounds = 200;
  ShareMembers group(kMembers);
  const auto layout = layout_of(ReduceOp::kSum, DType::kInt64, 40'000, kMembers);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (std::size_t m = 0; m < kMembers; ++m) {
    threads.emplace_back([&, m] { group.rounds[m]->serve(); });
    threads.emplace_back([&, m] {
      for (std::uint64_t i = 1; i <= kRounds; ++i) {
        auto buffer = share_buffer(layout->size_bytes());
        std::vector<std::int64_t> mine(40'000, static_cast<std::int64_t>(i));
        load(*layout, std::as_bytes(std::span(mine)), buffer->data());
        group.rounds[m]->begin({i, i, layout, buffer, std::nullopt, m % 2 == 0});
        const auto is_done = [&] {
          MutexLock lock(group.mutex);
          return group.ended[m].size() == i;
        };
        if (m % 2 == 0) group.rounds[m]->drive(is_done, TimePoint::max());
        if (!test::eventually(is_done)) ++wrong;
        std::int64_t got = 0;
        std::memcpy(&got, buffer->data(), sizeof(got));
        if (got != static_cast<std::int64_t>(kMembers * i)) ++wrong;
      }
      group.rounds[m]->close();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

TEST(ShareSegmentTest, IsFoundByItsNonceAndLeaksNoDescriptor) {
  const std::size_t before = open_descriptors();
  {
    auto first = ShareSegment::make(2, kWindow);
    ASSERT_TRUE(first.ok());
    ShareOffer offer = (*first)->offer();
    EXPECT_TRUE(ShareSegment::open(offer, 1, 2).ok());
    EXPECT_FALSE(ShareSegment::open(offer, 1, 3).ok());
    ShareOffer other = offer;
    ++other.nonce[0];
    EXPECT_EQ(ShareSegment::open(other, 1, 2).status().code(), StatusCode::kUnavailable);
    other = offer;
    other.fd = 0;  // not shared memory
    EXPECT_FALSE(ShareSegment::open(other, 1, 2).ok());
    other.pid = -1;
    EXPECT_EQ(ShareSegment::open(other, 1, 2).status().code(), StatusCode::kUnavailable);
  }
  EXPECT_EQ(open_descriptors(), before);
}

TEST(ShareSegmentTest, ReleasesTheMemoryOfItsWindow) {
  auto segment = ShareSegment::make(2, kWindow);
  ASSERT_TRUE(segment.ok());
  (*segment)->window()[12345] = std::byte{7};
  (*segment)->release_window();
  EXPECT_EQ((*segment)->window()[12345], std::byte{0});
}

}  // namespace
}  // namespace reverie
