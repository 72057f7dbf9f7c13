#include "reverie/group/reduce_round.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/group/gather_round.h"
#include "reverie/reduce/topology.h"

namespace reverie {
namespace {

struct Carried {
  std::size_t from;
  RoundPart part;
};

// All members of one round, and the parts in transit, which are delivered in random order.
class Rounds {
 public:
  // `on_done` is called for each member at once when its round is done.
  explicit Rounds(
      std::vector<std::unique_ptr<Round>> rounds,
      std::function<void(std::size_t)> on_done = [](std::size_t) {})
      : rounds_(std::move(rounds)), on_done_(std::move(on_done)), was_done_(rounds_.size()) {}

  void run(Random& random) {
    std::vector<bool> has_begun(rounds_.size());
    std::size_t left = rounds_.size();
    while (left > 0 || !carried_.empty()) {
      const std::uint64_t draw = random.below(left + carried_.size());
      if (draw < left) {
        std::size_t member = random.below(rounds_.size());
        while (has_begun[member]) member = (member + 1) % rounds_.size();
        has_begun[member] = true;
        --left;
        std::vector<RoundPart> parts;
        rounds_[member]->start(parts);
        send(member, std::move(parts));
        look_at(member);
        continue;
      }
      // The group would keep parts that arrive before their receiver has begun.
      Carried& chosen = carried_[draw - left];
      if (!has_begun[chosen.part.to]) continue;
      Carried carried = std::move(chosen);
      carried_.erase(carried_.begin() + static_cast<std::ptrdiff_t>(draw - left));
      deliver(std::move(carried));
    }
    for (const auto& round : rounds_) EXPECT_TRUE(round->is_done());
  }
  std::size_t sent_bytes(std::size_t member) const { return sent_bytes_.at(member); }

 private:
  void send(std::size_t from, std::vector<RoundPart> parts) {
    sent_bytes_.resize(rounds_.size());
    for (RoundPart& part : parts) {
      for (const BulkPiece& piece : part.bulk) sent_bytes_[from] += piece.bytes.size();
      carried_.push_back({from, std::move(part)});
    }
  }
  void deliver(Carried carried) {
    // In the form in which it arrives: one piece in separate memory.
    auto bytes = std::make_shared<std::vector<std::byte>>();
    for (const BulkPiece& piece : carried.part.bulk) {
      bytes->resize(Payload::padded(bytes->size()));
      bytes->insert(bytes->end(), piece.bytes.begin(), piece.bytes.end());
    }
    Payload payload;
    payload.head = carried.part.head;
    if (!bytes->empty()) payload.bulk.push_back({*bytes, bytes});
    std::vector<RoundPart> parts;
    const Status status = rounds_[carried.part.to]->take(carried.from, carried.part.is_up,
                                                         carried.part.part, payload, parts);
    EXPECT_TRUE(status.ok()) << status.to_string();
    // A repeated part is refused, and changes nothing.
    std::vector<RoundPart> again;
    EXPECT_FALSE(rounds_[carried.part.to]
                     ->take(carried.from, carried.part.is_up, carried.part.part, payload, again)
                     .ok());
    EXPECT_TRUE(again.empty());
    send(carried.part.to, std::move(parts));
    look_at(carried.part.to);
    if (!carried.part.must_arrive) return;
    EXPECT_FALSE(rounds_[carried.from]->is_done());
    rounds_[carried.from]->arrived();
    look_at(carried.from);
  }
  void look_at(std::size_t member) {
    if (was_done_[member] || !rounds_[member]->is_done()) return;
    was_done_[member] = true;
    on_done_(member);
  }

  std::vector<std::unique_ptr<Round>> rounds_;
  std::function<void(std::size_t)> on_done_;
  std::vector<bool> was_done_;
  std::vector<Carried> carried_;
  std::vector<std::size_t> sent_bytes_;
};

struct Reduced {
  std::vector<std::shared_ptr<Buffer>> buffers;
  std::shared_ptr<const ReduceLayout> layout;
  std::vector<std::size_t> sent_bytes;
};

Reduced reduce(ReduceOp op, const std::vector<std::vector<ReduceLeaf>>& of_members,
               Random& random) {
  Reduced done;
  std::vector<std::unique_ptr<Round>> rounds;
  for (std::size_t i = 0; i < of_members.size(); ++i) {
    auto layout = ReduceLayout::make(op, of_members[i], of_members.size());
    EXPECT_TRUE(layout.ok()) << layout.status().to_string();
    done.layout = std::make_shared<const ReduceLayout>(std::move(*layout));
    auto buffer = Allocator::heap().allocate(done.layout->size_bytes() + 1);
    EXPECT_TRUE(buffer.ok());
    done.layout->load(of_members[i], {buffer->data(), done.layout->size_bytes()});
    done.buffers.push_back(std::make_shared<Buffer>(std::move(*buffer)));
    rounds.push_back(
        std::make_unique<ReduceRound>(done.layout, done.buffers.back(), i, of_members.size()));
  }
  Rounds all(std::move(rounds));
  all.run(random);
  for (std::size_t i = 0; i < of_members.size(); ++i) {
    done.sent_bytes.push_back(of_members.size() > 1 ? all.sent_bytes(i) : std::size_t{0});
  }
  return done;
}

template <typename T>
std::vector<T> values_of(const Reduced& reduced, std::size_t member, std::size_t piece) {
  std::vector<T> values(reduced.layout->pieces()[piece].count);
  reduced.layout->unload(piece, reduced.buffers[member]->bytes(),
                         reinterpret_cast<std::byte*>(values.data()));
  return values;
}

template <typename T>
ReduceLeaf leaf(const char* name, DType dtype, const std::vector<T>& values) {
  return {
      name, dtype, {static_cast<std::int64_t>(values.size())}, std::as_bytes(std::span(values))};
}

// Sums of floats depend on their order, but any order of arrival must give the same bytes.
TEST(ReduceRound, GivesTheSameBytesInAnyOrderOfArrival) {
  Random random(3);
  for (const std::size_t count : {1u, 2u, 3u, 5u, 8u, 13u}) {
    std::vector<std::vector<float>> numbers(count);
    for (auto& of_member : numbers) {
      for (int i = 0; i < 40'000; ++i) {
        of_member.push_back(static_cast<float>((random.uniform() - 0.5) * 1e6));
      }
    }
    std::vector<std::vector<ReduceLeaf>> leaves;
    for (const auto& of_member : numbers) {
      leaves.push_back({leaf("numbers", DType::kFloat32, of_member)});
    }
    const std::vector<float> first = values_of<float>(reduce(ReduceOp::kSum, leaves, random), 0, 0);
    for (std::size_t i = 0; i < first.size(); i += 997) {
      double sum = 0;
      for (const auto& of_member : numbers) sum += static_cast<double>(of_member[i]);
      EXPECT_NEAR(static_cast<double>(first[i]), sum, 1.0);
    }
    for (int run = 0; run < 3; ++run) {
      const Reduced again = reduce(ReduceOp::kSum, leaves, random);
      for (std::size_t member = 0; member < count; ++member) {
        EXPECT_EQ(values_of<float>(again, member, 0), first) << count;
      }
    }
  }
}

// Arrays of many types and sizes, some empty, in many parts that end in the middle of arrays.
TEST(ReduceRound, ReducesNestedArraysOneAfterTheOther) {
  Random random(5);
  constexpr std::size_t kCount = 4;
  std::vector<std::vector<double>> a(kCount);
  std::vector<std::vector<std::int32_t>> b(kCount);
  std::vector<std::vector<std::int32_t>> none(kCount);
  std::vector<std::vector<std::uint8_t>> c(kCount);
  std::vector<std::vector<ReduceLeaf>> leaves;
  for (std::size_t member = 0; member < kCount; ++member) {
    for (int i = 0; i < 9'001; ++i) a[member].push_back(static_cast<double>(random.below(1000)));
    for (int i = 0; i < 3; ++i) b[member].push_back(static_cast<std::int32_t>(random.below(1000)));
    for (int i = 0; i < 70'000; ++i)
      c[member].push_back(static_cast<std::uint8_t>(random.below(200)));
    leaves.push_back({leaf("a", DType::kFloat64, a[member]),
                      leaf("none", DType::kInt32, none[member]),
                      leaf("b", DType::kInt32, b[member]), leaf("c", DType::kUInt8, c[member])});
  }
  const Reduced max = reduce(ReduceOp::kMax, leaves, random);
  for (std::size_t i = 0; i < c[0].size(); ++i) {
    std::uint8_t expected = 0;
    for (std::size_t member = 0; member < kCount; ++member) {
      expected = std::max(expected, c[member][i]);
    }
    ASSERT_EQ(values_of<std::uint8_t>(max, 2, 3)[i], expected) << i;
    if (i > 50) i += 99;
  }
  const Reduced sum = reduce(ReduceOp::kSum, leaves, random);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(values_of<std::int32_t>(sum, 1, 2)[i], b[0][i] + b[1][i] + b[2][i] + b[3][i]);
  }
  const std::vector<double> a_sum = values_of<double>(sum, 3, 0);
  for (std::size_t i = 0; i < a_sum.size(); ++i) {
    ASSERT_EQ(a_sum[i], a[0][i] + a[1][i] + a[2][i] + a[3][i]);
  }
}

// 1 + 15 * 2^-11 rounds to 1 + 2^-7 if it is summed in float32; summed in halves it would stay 1.
TEST(ReduceRound, HalfPrecisionSumsAreRoundedOnce) {
  Random random(9);
  std::vector<std::vector<std::uint16_t>> halves(16,
                                                 std::vector<std::uint16_t>(1, 0x1000));  // 2^-11
  halves[0][0] = 0x3c00;                                                                  // 1
  std::vector<std::vector<ReduceLeaf>> leaves;
  for (const auto& half : halves) leaves.push_back({leaf("h", DType::kFloat16, half)});
  const Reduced sum = reduce(ReduceOp::kSum, leaves, random);
  EXPECT_EQ(values_of<std::uint16_t>(sum, 7, 0)[0], 0x3c08);
  const Reduced mean = reduce(ReduceOp::kMean, leaves, random);
  EXPECT_EQ(values_of<std::uint16_t>(mean, 7, 0)[0], 0x2c08);
}

TEST(ReduceRound, EachMemberSendsAtMostTwiceTheData) {
  Random random(1);
  constexpr std::size_t kFloats = 1'000'000;
  for (const std::size_t count : {2u, 4u, 7u, 8u}) {
    const std::vector<float> zeros(kFloats);
    const std::vector<std::vector<ReduceLeaf>> leaves(count, {leaf("z", DType::kFloat32, zeros)});
    const Reduced done = reduce(ReduceOp::kSum, leaves, random);
    const double fair = 8.0 * static_cast<double>(kFloats) * static_cast<double>(count - 1) /
                        static_cast<double>(count);
    for (const std::size_t sent : done.sent_bytes) {
      EXPECT_NEAR(static_cast<double>(sent), fair, fair * 0.05) << count;
    }
  }
}

TEST(ReduceRound, InvalidPartsAreRefused) {
  const std::vector<float> zeros(100);
  const std::vector<ReduceLeaf> leaves = {leaf("z", DType::kFloat32, zeros)};
  auto layout = ReduceLayout::make(ReduceOp::kSum, leaves, 3);
  ASSERT_TRUE(layout.ok());
  const auto shared = std::make_shared<const ReduceLayout>(std::move(*layout));
  auto buffer = Allocator::heap().allocate(shared->size_bytes());
  ASSERT_TRUE(buffer.ok());
  ReduceRound round(shared, std::make_shared<Buffer>(std::move(*buffer)), 0, 3);
  std::vector<RoundPart> out;
  const auto bytes = std::make_shared<std::vector<std::byte>>(shared->size_bytes());
  Payload good;
  good.bulk.push_back({*bytes, bytes});
  Payload bad;
  bad.bulk.push_back({std::span<const std::byte>(*bytes).first(8), bytes});
  EXPECT_FALSE(round.take(1, true, 1, good, out).ok());   // there is only part 0
  EXPECT_FALSE(round.take(1, true, 0, bad, out).ok());    // too short
  EXPECT_FALSE(round.take(1, true, 0, {}, out).ok());     // empty
  EXPECT_FALSE(round.take(0, true, 0, good, out).ok());   // from itself
  EXPECT_FALSE(round.take(1, false, 0, good, out).ok());  // the root gets no results from others
  EXPECT_TRUE(out.empty());
  EXPECT_TRUE(round.take(2, true, 0, good, out).ok());
  EXPECT_TRUE(round.take(1, true, 0, good, out).ok());
  EXPECT_EQ(out.size(), 2u);
}

TEST(ReduceLayout, NamesTheInvalidArray) {
  const std::vector<std::int32_t> numbers(6);
  ReduceLeaf wrong = leaf("layer/weight", DType::kInt32, numbers);
  const auto mean = ReduceLayout::make(ReduceOp::kMean, {&wrong, 1}, 2);
  EXPECT_EQ(mean.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(mean.status().message().find("layer/weight"), std::string::npos);
  wrong.shape = {2, 4};
  const auto sized = ReduceLayout::make(ReduceOp::kSum, {&wrong, 1}, 2);
  EXPECT_NE(sized.status().message().find("layer/weight"), std::string::npos);
}

TEST(ReduceLayout, ReportsWhereTwoMembersDiffer) {
  EXPECT_EQ(signature_difference("sum\na float32 (3,)", "sum\na float32 (3,)", "b"), "");
  EXPECT_EQ(signature_difference("sum\nw float32 (3,)", "sum\nw float32 (4,)", "b"),
            "'w float32 (3,)' here, 'w float32 (4,)' on 'b'");
  EXPECT_EQ(signature_difference("sum\nw float32 (3,)", "sum", "b"),
            "'w float32 (3,)' here, 'nothing' on 'b'");
}

TEST(GatherRound, GivesEachMemberTheValuesOfAllMembers) {
  Random random(11);
  for (const std::size_t count : {1u, 2u, 5u, 9u}) {
    for (std::size_t tree = 0; tree < count; tree += 2) {
      std::vector<std::unique_ptr<Round>> rounds;
      std::vector<GatherRound*> gathers;
      for (std::size_t i = 0; i < count; ++i) {
        Payload mine;
        mine.head = {static_cast<std::byte>(i)};
        const auto bulk =
            std::make_shared<std::vector<std::byte>>(i * 30, static_cast<std::byte>(i));
        if (i > 0) mine.bulk.push_back({*bulk, bulk});
        if (i == 3) mine.bulk.push_back({*bulk, bulk});
        std::optional<Payload> brought = mine;
        if (i == 4) brought.reset();
        auto round = std::make_unique<GatherRound>("values", brought, tree, i, count);
        gathers.push_back(round.get());
        rounds.push_back(std::move(round));
      }
      Rounds all(std::move(rounds));
      all.run(random);
      for (GatherRound* const gather : gathers) {
        const auto values = gather->take_values();
        EXPECT_EQ(values.size(), count - (count > 4 ? 1 : 0));
        for (const auto& [member, value] : values) {
          EXPECT_EQ(value.head, std::vector<std::byte>{static_cast<std::byte>(member)});
          const std::size_t size = member == 3 ? 128 + 90 : member * 30;
          ASSERT_EQ(value.bulk_bytes(), size);
          if (size > 0) {
            EXPECT_EQ(value.bulk.front().bytes.front(), static_cast<std::byte>(member));
          }
        }
      }
    }
  }
}

// As an operation does that changes its first argument, while other members still receive.
TEST(GatherRound, AMemberThatWritesToItsValuesChangesThoseOfNoOther) {
  Random random(12);
  constexpr std::size_t kCount = 7;
  for (const std::size_t size : {std::size_t{100}, 2 * kCopiedResultMax}) {
    for (int run = 0; run < 20; ++run) {
      std::vector<std::unique_ptr<Round>> rounds;
      std::vector<GatherRound*> gathers;
      for (std::size_t i = 0; i < kCount; ++i) {
        const std::vector<std::byte> bytes(size, static_cast<std::byte>(i));
        Payload mine;
        mine.bulk.push_back(kept_copy(bytes));
        auto round = std::make_unique<GatherRound>("values", mine, 0, i, kCount);
        gathers.push_back(round.get());
        rounds.push_back(std::move(round));
      }
      std::size_t done = 0;
      std::vector<std::map<std::size_t, Payload>> kept;
      Rounds all(std::move(rounds), [&](std::size_t member) {
        ++done;
        kept.push_back(gathers[member]->take_values());
        ASSERT_EQ(kept.back().size(), kCount);
        for (const auto& [from, value] : kept.back()) {
          const std::span<const std::byte> bytes = value.bulk.front().bytes;
          EXPECT_EQ(std::ranges::count(bytes, static_cast<std::byte>(from)),
                    static_cast<std::ptrdiff_t>(size))
              << "the value of " << from << " on " << member;
          std::memset(const_cast<std::byte*>(bytes.data()), 0xff, bytes.size());
        }
      });
      all.run(random);
      EXPECT_EQ(done, kCount);
    }
  }
}

}  // namespace
}  // namespace reverie
