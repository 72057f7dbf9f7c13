#include "reverie/weights/weights.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"
#include "reverie/weights/weights_message.h"
#include "tests/support/late_calls.h"

namespace reverie {
namespace {

TimePoint in_time(double s = 30.0) {
  return Clock::system().now() + seconds(s);
}

std::shared_ptr<Peer> weights_peer(const std::string& name) {
  Peer::Options options;
  options.name = name;
  auto peer = Peer::make(options);
  EXPECT_TRUE(peer.ok());
  return std::move(*peer);
}

std::unique_ptr<Weights> weights_on(const std::shared_ptr<Peer>& peer,
                                    std::vector<std::string> sources, bool shares = true) {
  auto made = Weights::make(peer, {"policy", std::move(sources), shares});
  EXPECT_TRUE(made.ok()) << made.status().to_string();
  return std::move(*made);
}

// Two arrays with all elements equal to `value`.
Payload filled(float value, std::size_t count) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 2);
  for (int i = 0; i < 2; ++i) {
    auto keep = std::make_shared<std::vector<float>>(count, value);
    const auto bytes = std::as_bytes(std::span(*keep));
    const std::int64_t shape[] = {static_cast<std::int64_t>(count)};
    writer.lent_tensor(DType::kFloat32, shape, bytes, TensorMaker::kNumpy, keep);
  }
  return payload;
}

// The value of all elements of both arrays; -1 if they differ.
float element_of(const WeightsVersion& version) {
  ValueReader reader(version.value);
  if (!reader.next().ok()) return -1;
  float found = -1;
  for (int i = 0; i < 2; ++i) {
    const auto token = reader.next();
    if (!token.ok() || token->kind != ValueKind::kTensor || token->bytes.empty()) return -1;
    const std::span<const float> values(reinterpret_cast<const float*>(token->bytes.data()),
                                        token->bytes.size() / sizeof(float));
    if (i == 0) found = values[0];
    if (std::any_of(values.begin(), values.end(), [&](float one) { return one != found; })) {
      return -1;
    }
  }
  return found;
}

std::size_t weights_mapped() {
  std::size_t count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored);
    if (target.string().find("reverie-weights") != std::string::npos) ++count;
  }
  return count;
}

class WeightsBase : public ::testing::Test {
 protected:
  WeightsBase() {
    const auto address = learner_->listen("127.0.0.1:0");
    EXPECT_TRUE(address.ok());
    address_ = *address;
  }
  std::shared_ptr<Peer> join(const std::string& name) {
    auto peer = weights_peer(name);
    EXPECT_TRUE(peer->listen("127.0.0.1:0").ok());
    EXPECT_TRUE(peer->connect(address_).ok());
    return peer;
  }
  std::shared_ptr<Peer> learner_ = weights_peer("learner");
  std::string address_;
};

class WeightsTest : public WeightsBase, public ::testing::WithParamInterface<bool> {};
class SharedWeightsTest : public WeightsBase {};

TEST_P(WeightsTest, ArePulledByVersionAndHeldComplete) {
  const auto published = weights_on(learner_, {}, GetParam());
  const auto taken = weights_on(join("actor"), {"learner"}, GetParam());
  auto none = taken->pull(in_time());
  ASSERT_TRUE(none.ok()) << none.status().to_string();
  EXPECT_EQ(*none, nullptr);
  ASSERT_TRUE(published->publish(3, filled(3.0f, 100'000)).ok());
  auto third = taken->pull(in_time());
  ASSERT_TRUE(third.ok()) << third.status().to_string();
  EXPECT_EQ((*third)->version, 3u);
  ASSERT_TRUE(published->publish(5, filled(5.0f, 1000)).ok());
  EXPECT_EQ(taken->held()->version, 3u);
  auto fifth = taken->pull(in_time());
  ASSERT_TRUE(fifth.ok());
  EXPECT_EQ(element_of(**fifth), 5.0f);
  EXPECT_EQ(element_of(**third), 3.0f);  // unchanged
  EXPECT_EQ((*taken->pull(in_time()))->version, 5u);
  EXPECT_EQ(published->publish(5, filled(0, 1)).code(), StatusCode::kInvalidArgument);
}

TEST_P(WeightsTest, AreAwaitedAndComeFromAnotherPeerWhenThePublisherIsGone) {
  auto published = weights_on(learner_, {}, GetParam());
  const auto first = weights_on(join("first"), {"learner"}, GetParam());
  Result<Weights::VersionPtr> got = Weights::VersionPtr();
  std::thread waiter([&] { got = first->wait_for(1, in_time()); });
  ASSERT_TRUE(published->publish(0, filled(1.0f, 10)).ok());
  ASSERT_TRUE(published->publish(1, filled(2.0f, 50'000)).ok());
  waiter.join();
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(element_of(**got), 2.0f);
  EXPECT_EQ(first->wait_for(2, Clock::system().now()).status().code(),
            StatusCode::kDeadlineExceeded);
  published.reset();
  const auto late = weights_on(join("late"), {"learner", "first"}, GetParam());
  got = late->pull(in_time());
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(element_of(**got), 2.0f);
  EXPECT_EQ(first->pull(in_time()).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(element_of(*first->held()), 2.0f);
}

// New weights may be made before the closed ones are destroyed, which leave the new ones alone.
TEST_P(WeightsTest, ThatAreMadeAnewOutliveTheClosedOnes) {
  auto published = weights_on(learner_, {}, GetParam());
  published->close();
  const auto next = weights_on(learner_, {}, GetParam());
  published->close();
  published.reset();
  ASSERT_TRUE(next->publish(1, filled(1.0f, 1000)).ok());
  const auto taken = weights_on(join("actor"), {"learner"}, GetParam());
  const auto got = taken->pull(in_time());
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  ASSERT_NE(*got, nullptr);
  EXPECT_EQ(element_of(**got), 1.0f);
}

// The handler of such a request was looked up before the weights undefined it, and runs afterwards.
TEST_F(SharedWeightsTest, AnswerRequestsThatTheyAreGivenWhileTheyClose) {
  const auto published = weights_on(learner_, {});
  WeightsRequest ask;
  ask.at_least = 1;
  ask.waits = true;
  const auto close = [&] { published->close(); };
  for (const auto& call :
       test::late_calls(*learner_, join("actor"), close, "reverie.weights.policy", encode(ask))) {
    EXPECT_EQ(call->result().status.code(), StatusCode::kUnavailable);
  }
}

// Each peer opens a Unix socket when it connects.
TEST_F(SharedWeightsTest, SayWhoCanReachTheirPeer) {
  using Reach = WeightsRequest::Reach;
  std::atomic<Reach> told = Reach::kNone;
  const auto note = [&](const Request& request) {
    const auto ask = decode_weights_request(request.message.payload);
    told = ask.ok() ? ask->reach : Reach::kNone;
    learner_->answer(request.id, encode(WeightsAnswer{}));
  };
  ASSERT_TRUE(learner_->define("reverie.weights.policy", note).ok());
  const auto told_by = [&](const std::string& name, bool uses_unix,
                           const std::vector<std::string>& addresses) {
    Peer::Options options;
    options.name = name;
    options.uses_unix = options.uses_shared_memory = uses_unix;
    options.is_insecure_allowed = true;
    const std::shared_ptr<Peer> actor = std::move(Peer::make(options)).value();
    EXPECT_TRUE(actor->connect(address_).ok());
    for (const std::string& address : addresses) EXPECT_TRUE(actor->listen(address).ok());
    told = Reach::kNone;
    EXPECT_TRUE(weights_on(actor, {"learner"})->pull(in_time()).ok());
    return told.load();
  };
  EXPECT_EQ(told_by("a", false, {}), Reach::kNone);
  EXPECT_EQ(told_by("b", true, {}), Reach::kHost);
  EXPECT_EQ(told_by("c", false, {"127.0.0.1:0"}), Reach::kHost);
  EXPECT_EQ(told_by("d", true, {"127.0.0.1:0", "0.0.0.0:0"}), Reach::kAll);
}

TEST_P(WeightsTest, AreServedWithoutWhatIsWrittenToAnOwnCopy) {
  const auto published = weights_on(learner_, {}, GetParam());
  const auto taken = weights_on(join("actor"), {"learner"}, GetParam());
  const auto other = weights_on(join("other"), {"actor"}, /*shares=*/false);
  EXPECT_EQ(*taken->own_copy(), nullptr);
  ASSERT_TRUE(published->publish(1, filled(1.0f, 1000)).ok());
  ASSERT_TRUE(taken->pull(in_time()).ok());
  const auto own = taken->own_copy();
  ASSERT_TRUE(own.ok()) << own.status().to_string();
  EXPECT_EQ((*own)->version, 1u);
  const_cast<std::byte*>((*own)->value.bulk.front().bytes.data())[0] = std::byte{99};
  EXPECT_EQ(element_of(**own), -1);
  EXPECT_EQ(element_of(*taken->held()), 1.0f);
  const auto got = other->pull(in_time());
  ASSERT_TRUE(got.ok()) << got.status().to_string();
  EXPECT_EQ(element_of(**got), 1.0f);
}

TEST_P(WeightsTest, AreNeverTornWhileTheyChange) {
  const auto published = weights_on(learner_, {}, GetParam());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  constexpr std::uint64_t kVersions = 100;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&, i] {
      const auto taken = weights_on(join("actor" + std::to_string(i)), {"learner"}, GetParam());
      std::uint64_t last = 0;
      while (last < kVersions) {
        const auto got = taken->wait_for(last + 1, in_time());
        if (!got.ok() || (*got)->version <= last ||
            element_of(**got) != static_cast<float>((*got)->version)) {
          ++wrong;
          return;
        }
        last = (*got)->version;
      }
    });
  }
  for (std::uint64_t version = 1; version <= kVersions; ++version) {
    ASSERT_TRUE(published->publish(version, filled(static_cast<float>(version), 20'000)).ok());
    std::this_thread::yield();
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(MappedAndSent, WeightsTest, ::testing::Bool());

TEST_F(SharedWeightsTest, WritesOfAHolderAreSeenOnlyByItself) {
  const auto published = weights_on(learner_, {});
  const auto taken = weights_on(join("actor"), {"learner"});
  ASSERT_TRUE(published->publish(1, filled(1.0f, 1000)).ok());
  const auto got = taken->pull(in_time());
  ASSERT_TRUE(got.ok());
  const auto mine = (*got)->value.bulk.front().bytes;
  const_cast<std::byte*>(mine.data())[0] = std::byte{99};
  EXPECT_EQ(element_of(**got), -1);
  EXPECT_EQ(element_of(*published->held()), 1.0f);
}

TEST_F(SharedWeightsTest, LeaveNoMemoryBehind) {
  {
    const auto published = weights_on(learner_, {});
    const auto taken = weights_on(join("actor"), {"learner"});
    for (std::uint64_t version = 1; version <= 20; ++version) {
      ASSERT_TRUE(published->publish(version, filled(1.0f, 1000)).ok());
      ASSERT_TRUE(taken->pull(in_time()).ok());
    }
    // What both peers hold, two memories that versions use by turns, and a third if a reader
    // releases one late.
    EXPECT_LE(weights_mapped(), 6u);
  }
  EXPECT_EQ(weights_mapped(), 0u);
}

TEST_F(SharedWeightsTest, ReuseMemoryOnlyWhenNoReaderHoldsIt) {
  const auto published = weights_on(learner_, {});
  const auto taken = weights_on(join("actor"), {"learner"});
  const auto other = weights_on(join("other"), {"actor"});
  std::vector<Weights::VersionPtr> kept;
  for (std::uint64_t version = 1; version <= 20; ++version) {
    ASSERT_TRUE(published->publish(version, filled(static_cast<float>(version), 1000)).ok());
    ASSERT_TRUE(taken->pull(in_time()).ok());
    if (version % 7 == 0) kept.push_back(*other->pull(in_time()));
  }
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(element_of(*kept[0]), 7.0f);
  EXPECT_EQ(element_of(*kept[1]), 14.0f);
  EXPECT_EQ(element_of(*published->held()), 20.0f);
  // Two memories that are used by turns, and one per kept version, with at most one to spare.
  EXPECT_LE(weights_mapped(), 4u + 2 * kept.size());
}

TEST_F(SharedWeightsTest, ReleaseOldMemoryWhenTheSizeChanges) {
  const auto published = weights_on(learner_, {});
  for (std::uint64_t version = 1; version <= 20; ++version) {
    ASSERT_TRUE(published->publish(version, filled(1.0f, 1000 * version)).ok());
  }
  EXPECT_EQ(weights_mapped(), 2u);
}

TEST_F(SharedWeightsTest, RefuseInvalidUses) {
  const auto published = weights_on(learner_, {});
  EXPECT_EQ(Weights::make(learner_, {"policy", {}, true}).status().code(),
            StatusCode::kAlreadyExists);
  EXPECT_EQ(Weights::make(learner_, {"", {}, true}).status().code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Weights::make(learner_, {"other", {"learner"}, true}).status().code(),
            StatusCode::kInvalidArgument);
  EXPECT_EQ(published->pull(in_time()).status().code(), StatusCode::kUnavailable);
  ASSERT_TRUE(published->publish(1, filled(1.0f, 10)).ok());
  published->close();
  EXPECT_EQ(published->publish(2, filled(2.0f, 10)).code(), StatusCode::kCancelled);
  EXPECT_EQ(published->held()->version, 1u);
}

}  // namespace
}  // namespace reverie
