#include "reverie/weights/weights_core.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/tensor/value_writer.h"
#include "reverie/weights/version_memory.h"

namespace reverie {
namespace {

constexpr std::size_t kSize = 10 * kChangedBlock + 100;  // the last block is partial

WeightsVersion version_of(std::uint64_t version, const std::vector<std::uint8_t>& bytes) {
  Payload payload;
  ValueWriter writer(payload);
  const std::int64_t shape[] = {static_cast<std::int64_t>(bytes.size())};
  writer.tensor(DType::kUInt8, shape, std::as_bytes(std::span(bytes)), TensorMaker::kNumpy);
  return *copy_version(version, payload)->about;
}

std::vector<std::uint8_t> bytes_of(const WeightsVersion& version) {
  const auto bytes = version.value.bulk.front().bytes;
  std::vector<std::uint8_t> found(bytes.size());
  std::memcpy(found.data(), bytes.data(), bytes.size());
  return found;
}

TEST(WeightsChanges, GiveTheSameBytesAsAWholeVersion) {
  std::mt19937 draw(7);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<std::uint8_t> bytes(kSize);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(draw());
    const WeightsVersion older = version_of(1, bytes);
    const int count = turn % 6;
    for (int i = 0; i < count; ++i) bytes[draw() % kSize] ^= 1u;
    const WeightsVersion newer = version_of(2, bytes);
    const auto changes = find_changes(older, newer);
    ASSERT_TRUE(changes.has_value()) << turn;
    EXPECT_LE(changes->blocks.size(), static_cast<std::size_t>(count));
    const auto made = apply_changes(older, 2, std::make_shared<const WeightsChanges>(*changes));
    ASSERT_TRUE(made.ok()) << made.status().to_string();
    EXPECT_EQ(bytes_of(*made->about), bytes);
    EXPECT_EQ(made->about->value.head, newer.value.head);
  }
}

TEST(WeightsChanges, AreNotMadeWhenMoreThanHalfOrTheShapeDiffers) {
  const WeightsVersion older = version_of(1, std::vector<std::uint8_t>(kSize, 1));
  EXPECT_FALSE(find_changes(older, version_of(2, std::vector<std::uint8_t>(kSize, 2))));
  EXPECT_FALSE(find_changes(older, version_of(2, std::vector<std::uint8_t>(kSize + 1, 1))));
}

TEST(WeightsChanges, OfAnotherVersionAreRefused) {
  std::vector<std::uint8_t> bytes(kSize, 1);
  const WeightsVersion older = version_of(1, bytes);
  bytes[5'000] = 2;
  const auto changes = std::make_shared<WeightsChanges>(*find_changes(older, version_of(2, bytes)));
  bytes[1] = 9;
  EXPECT_EQ(apply_changes(version_of(1, bytes), 2, changes).status().code(), StatusCode::kDataLoss);
  changes->blocks.front() = 1'000'000;
  EXPECT_EQ(apply_changes(older, 2, changes).status().code(), StatusCode::kDataLoss);
  changes->blocks = {0, 1};
  EXPECT_EQ(apply_changes(older, 2, changes).status().code(), StatusCode::kDataLoss);
}

TEST(WeightsCore, AnInquiryThatWouldRetryAfterItsDeadlineEndsAtIt) {
  WeightsCore::Options options;
  options.name = "policy";
  options.self = "actor";
  WeightsCore core(options);
  const TimePoint start{};
  const TimePoint deadline = start + std::chrono::milliseconds(1);
  const WeightsCore::InquiryId asked = core.ask(1, /*waits=*/true, deadline, start);
  EXPECT_TRUE(core.take_ended().empty());
  ASSERT_EQ(core.next_tick(), deadline);
  core.tick(deadline);
  const std::vector<WeightsCore::Ended> ended = core.take_ended();
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended.front().ask, asked);
  EXPECT_EQ(ended.front().status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(core.next_tick(), TimePoint::max());
}

// A publisher and a peer that takes from it, which call each other at once.
class PublisherAndTaker {
 public:
  PublisherAndTaker() : taker_(options("actor", {"learner"}, 1)) {}

  void restart_publisher(std::uint64_t run) {
    publisher_ = std::make_unique<WeightsCore>(options("learner", {}, run));
  }
  void publish(std::uint64_t version) {
    const std::vector<std::uint8_t> bytes(kSize, static_cast<std::uint8_t>(version));
    HeldVersion made;
    made.about = std::make_shared<const WeightsVersion>(version_of(version, bytes));
    publisher_->publish(std::move(made), {});
    carry();
  }
  // As Weights::pull().
  std::uint64_t pull() {
    const WeightsCore::InquiryId asked = ask(held() + 1, /*waits=*/false);
    EXPECT_TRUE(has_ended(asked));
    return held();
  }
  WeightsCore::InquiryId ask(std::uint64_t at_least, bool waits) {
    const WeightsCore::InquiryId asked = taker_.ask(at_least, waits, TimePoint::max(), {});
    carry();
    return asked;
  }
  bool has_ended(WeightsCore::InquiryId asked) {
    for (const WeightsCore::Ended& end : taker_.take_ended()) {
      EXPECT_TRUE(end.status.ok()) << end.status.to_string();
      ended_.push_back(end.ask);
    }
    return std::ranges::count(ended_, asked) > 0;
  }
  std::uint64_t held() const { return taker_.held().about ? taker_.held().about->version : 0; }

 private:
  static WeightsCore::Options options(const std::string& self, std::vector<std::string> sources,
                                      std::uint64_t run) {
    WeightsCore::Options made;
    made.name = "policy";
    made.self = self;
    made.sources = std::move(sources);
    made.run = run;
    return made;
  }
  void carry() {
    for (bool moves = true; moves;) {
      moves = false;
      for (WeightsCore::Outgoing& out : taker_.take_outgoing()) {
        if (out.kind != WeightsCore::Outgoing::Kind::kCall) continue;
        moves = true;
        Request request;
        request.id = {1, out.ticket};
        request.caller = "actor";
        request.message.payload = std::move(out.payload);
        publisher_->on_request(request, {});
      }
      for (WeightsCore::Outgoing& out : publisher_->take_outgoing()) {
        moves = true;
        EXPECT_EQ(out.kind, WeightsCore::Outgoing::Kind::kAnswer);
        CallResult result;
        result.kind = CallResult::Kind::kAnswer;
        result.payload = std::move(out.payload);
        taker_.on_answered(out.request.call, result, {});
      }
    }
  }

  WeightsCore taker_;
  std::unique_ptr<WeightsCore> publisher_;
  std::vector<WeightsCore::InquiryId> ended_;
};

// Run 3 is on a host whose calendar is behind.
TEST(WeightsCore, TakesTheVersionsOfARestartedPublisherThoughTheyAreLower) {
  PublisherAndTaker both;
  for (const std::uint64_t run : {5u, 7u, 3u}) {
    both.restart_publisher(run);
    both.publish(run == 5 ? 100 : 90);
    EXPECT_EQ(both.pull(), run == 5 ? 100u : 90u) << run;
    both.publish(101);
    EXPECT_EQ(both.pull(), 101u) << run;
  }
}

TEST(WeightsCore, AWaitEndsWithTheFirstVersionOfARestartedPublisher) {
  PublisherAndTaker both;
  both.restart_publisher(5);
  const WeightsCore::InquiryId first = both.ask(100, /*waits=*/true);  // it has no version yet
  both.publish(99);
  EXPECT_FALSE(both.has_ended(first));
  both.publish(100);
  EXPECT_TRUE(both.has_ended(first));
  both.restart_publisher(6);
  const WeightsCore::InquiryId second = both.ask(101, /*waits=*/true);
  EXPECT_FALSE(both.has_ended(second));
  both.publish(40);
  EXPECT_TRUE(both.has_ended(second));
  EXPECT_EQ(both.held(), 40u);
}

// A relay between a publisher and peers that ask it: what it sends, and what it was asked.
class RelayTest : public ::testing::Test {
 protected:
  using Outgoing = WeightsCore::Outgoing;

  static WeightsCore::Options relay_options() {
    WeightsCore::Options options;
    options.name = "policy";
    options.self = "relay";
    options.sources = {"learner"};
    options.is_connected = [](const std::string&) { return true; };
    return options;
  }
  void ask(const WeightsRequest& ask, std::uint64_t call, const std::string& caller = "actor") {
    Request request;
    request.id = {1, call};
    request.caller = caller;
    request.message.payload = encode(ask);
    relay_.on_request(request, now_);
  }
  // The source answers what the relay asks, if it asks, with this version. False if it does not.
  bool answer(std::uint64_t version) {
    for (const Outgoing& out : take(Outgoing::Kind::kCall)) {
      const WeightsVersion made = version_of(version, std::vector<std::uint8_t>(kSize));
      WeightsAnswer answer;
      answer.kind = WeightsAnswer::Kind::kSent;
      answer.run = 1;
      answer.version = version;
      answer.head = made.value.head;
      CallResult result;
      result.kind = CallResult::Kind::kAnswer;
      result.payload = encode(answer);
      result.payload.bulk = made.value.bulk;
      relay_.on_answered(out.ticket, result, now_);
      return true;
    }
    return false;
  }
  // The source has no newer version within the time that the relay waits.
  bool answer_late() {
    for (const Outgoing& out : take(Outgoing::Kind::kCall)) {
      CallResult result;
      result.kind = CallResult::Kind::kFailed;
      result.status = deadline_exceeded("none yet");
      relay_.on_answered(out.ticket, result, now_);
      return true;
    }
    return false;
  }
  std::vector<Outgoing> take(Outgoing::Kind kind) {
    for (Outgoing& out : relay_.take_outgoing()) sent_.push_back(std::move(out));
    std::vector<Outgoing> taken;
    for (Outgoing& out : std::exchange(sent_, {})) {
      (out.kind == kind ? taken : sent_).push_back(std::move(out));
    }
    return taken;
  }

  TimePoint now_ = TimePoint{} + std::chrono::hours(1);
  WeightsCore relay_{relay_options()};
  std::vector<Outgoing> sent_;
};

// A version may have gigabytes, and a core handles answers on the thread that keeps its peer alive.
TEST_F(RelayTest, TheCopyThatChangesAreAppliedToIsLeftToTheOwner) {
  std::vector<std::uint8_t> bytes(kSize);
  const WeightsVersion first = version_of(1, bytes);
  bytes[5] = 7;
  const std::optional<WeightsChanges> changes = find_changes(first, version_of(2, bytes));
  ASSERT_TRUE(changes.has_value());
  relay_.ask(1, /*waits=*/true, TimePoint::max(), now_);
  ASSERT_TRUE(answer(1));
  relay_.ask(2, /*waits=*/true, TimePoint::max(), now_);
  const std::vector<Outgoing> calls = take(Outgoing::Kind::kCall);
  ASSERT_EQ(calls.size(), 1u);
  WeightsAnswer answer;
  answer.kind = WeightsAnswer::Kind::kChanged;
  answer.run = 1;
  answer.version = 2;
  answer.base = 1;
  answer.blocks = changes->blocks;
  answer.checksum = changes->checksum;
  CallResult result;
  result.kind = CallResult::Kind::kAnswer;
  result.payload = encode(answer);
  result.payload.bulk.push_back(changes->bytes);
  relay_.on_answered(calls.front().ticket, result, now_);
  EXPECT_EQ(relay_.held().about->version, 1u);
  const std::vector<Outgoing> copies = take(Outgoing::Kind::kCopy);
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies.front().copied_bytes, kSize);
  relay_.on_copied(copies.front().ticket, copies.front().copy(), now_);
  EXPECT_EQ(relay_.held().about->version, 2u);
  EXPECT_EQ(bytes_of(*relay_.held().about), bytes);
}

TEST_F(RelayTest, ARequestThatDoesNotWaitIsAnsweredWithTheFirstVersionEvenIfItIsTooOld) {
  WeightsRequest pull;
  pull.at_least = 8;
  pull.waits = false;
  ask(pull, 3);
  EXPECT_TRUE(take(Outgoing::Kind::kAnswer).empty());
  ASSERT_TRUE(answer(7));
  const std::vector<Outgoing> answers = take(Outgoing::Kind::kAnswer);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].request, (InboundId{1, 3}));
  const Result<WeightsAnswer> told = decode_weights_answer(answers[0].payload);
  ASSERT_TRUE(told.ok()) << told.status().to_string();
  EXPECT_EQ(told->kind, WeightsAnswer::Kind::kNothing);
}

TEST_F(RelayTest, DoesNotFollowForChildrenThatHaveLongBeenSilent) {
  WeightsRequest pull;
  pull.waits = false;
  pull.reach = WeightsRequest::Reach::kAll;
  ask(pull, 3);
  std::uint64_t version = 1;
  ASSERT_TRUE(answer(version));
  EXPECT_TRUE(relay_.sends(now_));
  now_ = now_ + std::chrono::seconds(60);  // some programs pull this rarely
  EXPECT_TRUE(answer(++version));
  EXPECT_TRUE(relay_.sends(now_));
  now_ = now_ + std::chrono::minutes(5);
  EXPECT_TRUE(answer(++version)) << "which was asked for before";
  EXPECT_FALSE(answer(++version));
  EXPECT_FALSE(relay_.sends(now_));
}

TEST_F(RelayTest, AnswersAPullWithTheNewestVersionAfterItHasStoppedFollowing) {
  WeightsRequest pull;
  pull.waits = false;
  pull.reach = WeightsRequest::Reach::kAll;
  ask(pull, 3);
  ASSERT_TRUE(answer(1));
  EXPECT_EQ(take(Outgoing::Kind::kAnswer).size(), 1u);
  now_ = now_ + std::chrono::minutes(5);
  ASSERT_TRUE(answer(2));
  ASSERT_FALSE(answer(3)) << "it follows no longer";
  pull.run = 1;
  pull.at_least = 2;
  ask(pull, 4);
  EXPECT_TRUE(take(Outgoing::Kind::kAnswer).empty()) << "version 2 may be old";
  ASSERT_TRUE(answer(9));
  const std::vector<Outgoing> answers = take(Outgoing::Kind::kAnswer);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(decode_weights_answer(answers[0].payload).value().version, 9u);
  ask(pull, 5);
  EXPECT_EQ(take(Outgoing::Kind::kAnswer).size(), 1u) << "at once, since it follows again";
}

TEST_F(RelayTest, AnswersAPullWithWhatItHasIfItsSourceHasNothingNewerOrIsLost) {
  WeightsRequest pull;
  pull.waits = false;
  pull.reach = WeightsRequest::Reach::kAll;
  ask(pull, 3);
  ASSERT_TRUE(answer(1));
  EXPECT_EQ(take(Outgoing::Kind::kAnswer).size(), 1u);
  for (const bool is_lost : {false, true}) {
    SCOPED_TRACE(is_lost);
    now_ = now_ + std::chrono::minutes(5);
    ASSERT_TRUE(answer_late());
    ASSERT_FALSE(answer_late()) << "it follows no longer";
    ask(pull, 4);
    EXPECT_TRUE(take(Outgoing::Kind::kAnswer).empty());
    CallResult result;
    result.kind = is_lost ? CallResult::Kind::kFailed : CallResult::Kind::kAnswer;
    result.status = is_lost ? unavailable("no connection") : Status();
    if (!is_lost) result.payload = encode(WeightsAnswer{});
    const std::vector<Outgoing> calls = take(Outgoing::Kind::kCall);
    ASSERT_EQ(calls.size(), 1u);
    relay_.on_answered(calls[0].ticket, result, now_);
    const std::vector<Outgoing> answers = take(Outgoing::Kind::kAnswer);
    ASSERT_EQ(answers.size(), 1u);
    EXPECT_EQ(decode_weights_answer(answers[0].payload).value().version, 1u);
  }
}

TEST_F(RelayTest, StopsFollowingWhereNoVersionComesMeanwhile) {
  WeightsRequest pull;
  pull.waits = false;
  pull.reach = WeightsRequest::Reach::kAll;
  ask(pull, 3);
  ASSERT_TRUE(answer(1));
  now_ = now_ + std::chrono::seconds(3);
  ASSERT_TRUE(answer_late());
  now_ = now_ + std::chrono::minutes(5);
  EXPECT_TRUE(answer_late());
  EXPECT_FALSE(answer_late());
}

TEST_F(RelayTest, FollowsForAChildThatWaitsHoweverLong) {
  WeightsRequest wait;
  wait.at_least = 5;
  wait.waits = true;
  wait.reach = WeightsRequest::Reach::kAll;
  ask(wait, 3);
  ASSERT_TRUE(answer(1));
  now_ = now_ + std::chrono::minutes(5);
  EXPECT_TRUE(answer(2));
  EXPECT_TRUE(relay_.sends(now_));
  EXPECT_TRUE(answer(5));
  EXPECT_EQ(take(Outgoing::Kind::kAnswer).size(), 1u);
}

// Run 3 is on a host whose calendar is behind, and is asked before it has a version.
TEST(WeightsCore, APublisherThatWasAskedBeforeItsFirstVersionHasTheLatestRun) {
  PublisherAndTaker both;
  both.restart_publisher(100);
  both.publish(7);
  EXPECT_EQ(both.pull(), 7u);
  both.restart_publisher(3);
  const WeightsCore::InquiryId waiting = both.ask(8, /*waits=*/true);
  EXPECT_FALSE(both.has_ended(waiting));
  both.publish(2);
  EXPECT_TRUE(both.has_ended(waiting));
  EXPECT_EQ(both.held(), 2u);
}

// Another peer has a version of a still later run; the first one waits meanwhile.
TEST(WeightsCore, APublisherWhoseRunRisesAnswersThePeersThatWait) {
  WeightsCore::Options options;
  options.name = "policy";
  options.self = "learner";
  options.run = 50;
  WeightsCore publisher(options);
  HeldVersion made;
  made.about =
      std::make_shared<const WeightsVersion>(version_of(2, std::vector<std::uint8_t>(kSize)));
  const auto ask = [&](std::uint64_t run, std::uint64_t call) {
    WeightsRequest asked;
    asked.at_least = 8;
    asked.run = run;
    asked.waits = true;
    Request request;
    request.id = {1, call};
    request.caller = "actor";
    request.message.payload = encode(asked);
    publisher.on_request(request, {});
  };
  publisher.publish(std::move(made), {});
  ask(50, 1);
  EXPECT_TRUE(publisher.take_outgoing().empty());
  ask(100, 2);
  std::vector<std::uint64_t> answered;
  for (const auto& out : publisher.take_outgoing()) answered.push_back(out.request.call);
  EXPECT_EQ(answered, (std::vector<std::uint64_t>{1, 2}));
}

// A publisher on host "0" that has a version, and peers that pull it.
class TreeTest : public ::testing::Test {
 protected:
  using Reach = WeightsRequest::Reach;

  TreeTest() {
    HeldVersion made;
    made.about =
        std::make_shared<const WeightsVersion>(version_of(1, std::vector<std::uint8_t>(kSize)));
    publisher_.publish(std::move(made), {});
  }
  // The peer that `caller` is referred to; empty if it gets the version.
  std::string pull(const std::string& caller, const std::string& host, Reach reach,
                   const std::string& refused = {}, bool maps = true) {
    WeightsRequest ask;
    ask.maps = maps;
    ask.reach = reach;
    ask.host = host;
    ask.refused = refused;
    Request request;
    request.caller = caller;
    request.message.payload = encode(ask);
    publisher_.on_request(request, {});
    const auto out = publisher_.take_outgoing();
    if (out.size() != 1) return "not answered";
    const auto answer = decode_weights_answer(out[0].payload);
    if (!answer.ok()) return answer.status().to_string();
    if (answer->kind == WeightsAnswer::Kind::kElsewhere) return answer->peer;
    return answer->kind == WeightsAnswer::Kind::kSent ? "" : "another answer";
  }

 private:
  static WeightsCore::Options publisher_options() {
    WeightsCore::Options options;
    options.name = "policy";
    options.self = "learner";
    options.host = "0";
    return options;
  }
  WeightsCore publisher_{publisher_options()};
};

TEST_F(TreeTest, PeersAreReferredToThoseThatListen) {
  for (const std::string host : {"1", "2", "3", "4"}) {
    EXPECT_EQ(pull("a" + host, host, Reach::kAll), "");
  }
  for (const std::string host : {"5", "6"}) {
    const std::string to = pull("a" + host, host, Reach::kAll);
    EXPECT_TRUE(to == "a1" || to == "a2" || to == "a3" || to == "a4") << to;
    EXPECT_NE(pull("b" + host, host, Reach::kNone), "");
  }
  EXPECT_EQ(pull("a1", "1", Reach::kAll), "") << "it stays";
}

// None of them listens for other hosts.
TEST_F(TreeTest, PeersThatOnlyTheirHostReachesAreReferredToByThatHostAlone) {
  for (int turn = 0; turn < 2; ++turn) {
    for (const std::string host : {"1", "2", "3", "4", "5", "6", "7"}) {
      EXPECT_EQ(pull("a" + host, host, Reach::kHost), "");
      EXPECT_EQ(pull("b" + host, host, Reach::kHost), "a" + host);
      EXPECT_EQ(pull("c" + host, host, Reach::kNone), "a" + host);
    }
  }
  EXPECT_EQ(pull("b1", "1", Reach::kHost, /*refused=*/"a1"), "");
  EXPECT_EQ(pull("c1", "1", Reach::kNone), "b1");
}

TEST_F(TreeTest, PeersThatNoneReachesGetTheVersionThemselves) {
  for (const std::string host : {"1", "1", "2", "3", "4", "5"}) {
    EXPECT_EQ(pull("a" + host, host, Reach::kNone), "");
    EXPECT_EQ(pull("b" + host, "", Reach::kHost), "") << "its host is not known";
  }
}

// As with shared_memory=False, on the publisher's host or another.
TEST_F(TreeTest, PeersOfAHostThatMapNothingFormATreeOfTheirOwn) {
  for (const std::string host : {"0", "1"}) {
    const auto pull_one = [&](const std::string& name) {
      return pull(name + host, host, Reach::kHost, {}, /*maps=*/false);
    };
    for (const std::string name : {"a", "b", "c", "d"}) EXPECT_EQ(pull_one(name), "");
    EXPECT_NE(pull_one("e"), "");
    EXPECT_EQ(pull_one("a"), "");
  }
}

TEST(WeightsMessages, SurviveARoundTripAndInvalidOnesAreRefused) {
  using Reach = WeightsRequest::Reach;
  WeightsRequest ask{3, 5, true, 2, true, false, Reach::kHost, "host", "gone"};
  const auto read = decode_weights_request(encode(ask));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(read->at_least, 3u);
  EXPECT_EQ(read->run, 5u);
  EXPECT_TRUE(read->has_version && read->maps && !read->waits);
  EXPECT_EQ(read->reach, Reach::kHost);
  EXPECT_EQ(read->host + read->refused, "hostgone");
  WeightsAnswer answer;
  answer.kind = WeightsAnswer::Kind::kChanged;
  answer.version = 9;
  answer.base = 8;
  answer.blocks = {1, 7};
  answer.checksum = 0xffffffffu;
  const auto back = decode_weights_answer(encode(answer));
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(back->blocks, answer.blocks);
  EXPECT_EQ(back->checksum, answer.checksum);
  for (Payload bad : {encode(ask), encode(answer)}) {
    for (std::size_t size = 0; size < bad.head.size(); ++size) {
      Payload cut;
      cut.head.assign(bad.head.begin(), bad.head.begin() + static_cast<std::ptrdiff_t>(size));
      EXPECT_FALSE(decode_weights_request(cut).ok());
      EXPECT_FALSE(decode_weights_answer(cut).ok());
    }
  }
  answer.place.fd = -7;
  EXPECT_EQ(decode_weights_answer(encode(answer)).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reverie
