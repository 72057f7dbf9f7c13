#include "reverie/native_wire/insert_session.h"

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

class FakeInsertCall final : public InsertCall {
 public:
  void pause_reading() override { is_paused_ = true; }
  void resume_reading() override { is_paused_ = false; }
  void abort(const Status& why) override { finished_ = why; }

  bool is_paused() const { return is_paused_; }
  const std::optional<Status>& finished() const { return finished_; }

 private:
  bool is_paused_ = false;
  std::optional<Status> finished_;
};

std::string id(int number) {
  return format("{:032x}", number);
}

TEST(InsertSession, TheNextStreamResumesWhenNoInsertIsPending) {
  InsertSession session;
  const auto first = std::make_shared<FakeInsertCall>();
  session.attach(first);
  EXPECT_FALSE(first->is_paused());
  EXPECT_FALSE(session.begin(1));
  EXPECT_FALSE(session.begin(2));
  session.note_done(1, true);
  const auto second = std::make_shared<FakeInsertCall>();
  session.attach(second);
  EXPECT_TRUE(second->is_paused());
  EXPECT_EQ(first->finished().value().code(), StatusCode::kUnavailable);
  session.leave(first);
  EXPECT_TRUE(second->is_paused()) << "whether 2 goes in is not decided";
  session.note_done(2, false);
  EXPECT_FALSE(second->is_paused());
  EXPECT_TRUE(session.begin(1));
  EXPECT_FALSE(session.begin(2));
  session.note_done(2, true);
  session.leave(second);
}

TEST(InsertSession, OfSeveralWaitingStreamsTheLastTakesOver) {
  InsertSession session;
  const auto first = std::make_shared<FakeInsertCall>();
  const auto second = std::make_shared<FakeInsertCall>();
  const auto third = std::make_shared<FakeInsertCall>();
  session.attach(first);
  session.attach(second);
  session.attach(third);
  EXPECT_TRUE(second->finished().has_value());
  session.leave(second);
  EXPECT_TRUE(third->is_paused());
  session.leave(first);
  EXPECT_FALSE(third->is_paused());
  session.leave(third);
}

// The data of a broken connection may arrive after the next connection was made.
TEST(InsertSession, AStreamOlderThanAnEarlierOneIsRefused) {
  InsertSession session;
  const auto second = std::make_shared<FakeInsertCall>();
  EXPECT_TRUE(session.attach(second, 2));
  EXPECT_FALSE(session.begin(1));
  session.note_done(1, true);
  EXPECT_TRUE(session.settle(2)) << "the writer knows that 1 is in";
  const auto first = std::make_shared<FakeInsertCall>();
  EXPECT_FALSE(session.attach(first, 1));
  EXPECT_TRUE(first->is_paused());
  EXPECT_FALSE(second->finished().has_value());
  EXPECT_TRUE(session.begin(1)) << "not a second time";
  session.leave(second);
  const auto untold = std::make_shared<FakeInsertCall>();
  EXPECT_TRUE(session.attach(untold)) << "from a writer that does not tell its age";
  EXPECT_FALSE(untold->is_paused());
  session.leave(untold);
}

TEST(InsertSessions, AnIdleSessionIsRememberedForItsTimeout) {
  ManualClock clock;
  InsertSessions sessions(clock, /*idle_count_max=*/10, std::chrono::minutes(1));
  const auto session = sessions.open(id(1));
  sessions.close(id(1));
  clock.advance(std::chrono::seconds(59));
  EXPECT_EQ(sessions.open(id(1)), session);
  clock.advance(std::chrono::minutes(10));
  EXPECT_EQ(sessions.open(id(1)), session) << "it is in use";
  sessions.close(id(1));
  sessions.close(id(1));
  clock.advance(std::chrono::minutes(1));
  EXPECT_NE(sessions.open(id(1)), session);
}

TEST(InsertSessions, TheLongestIdleSessionIsForgottenBeyondTheBound) {
  ManualClock clock;
  InsertSessions sessions(clock, /*idle_count_max=*/3, std::chrono::minutes(1));
  const auto used = sessions.open(id(0));
  for (int number = 1; number <= 5; ++number) {
    sessions.open(id(number))->begin(7);
    sessions.close(id(number));
  }
  EXPECT_EQ(sessions.count(), 4u);
  sessions.close(id(0));
  EXPECT_EQ(sessions.count(), 3u);
}

TEST(InsertSessions, AnIdIs32LowerCaseHexDigits) {
  EXPECT_TRUE(InsertSessions::is_id("0123456789abcdef0123456789abcdef"));
  EXPECT_FALSE(InsertSessions::is_id("0123456789ABCDEF0123456789abcdef"));
  EXPECT_FALSE(InsertSessions::is_id("0123456789abcdef0123456789abcde"));
  EXPECT_FALSE(InsertSessions::is_id(""));
}

TEST(InsertSessions, ARestoredSessionKnowsWhatWasInserted) {
  ManualClock clock;
  InsertSessions sessions(clock, /*idle_count_max=*/10, std::chrono::minutes(1));
  std::vector<std::string> forgotten;
  sessions.set_on_forget([&](const std::string& name) { forgotten.push_back(name); });
  NumberSet in;
  for (const std::uint64_t number : {1u, 2u, 4u}) in.add(number);
  sessions.restore(id(1), in);
  sessions.restore(id(2), in);
  const auto session = sessions.open(id(1));
  EXPECT_TRUE(session->begin(2));
  EXPECT_FALSE(session->begin(3));
  session->note_done(3, true);
  EXPECT_TRUE(session->settle(3));
  EXPECT_FALSE(session->settle(3)) << "no news";
  EXPECT_TRUE(session->begin(2)) << "it is settled: nothing of it comes in any more";
  clock.advance(std::chrono::minutes(2));
  sessions.close(id(1));
  EXPECT_EQ(forgotten, (std::vector<std::string>{id(2)}));
}

}  // namespace
}  // namespace reverie
