#include "reverie/calls/pending_call.h"

#include <atomic>
#include <string>
#include <utility>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "tests/support/number_values.h"

namespace reverie {
namespace {

constexpr Duration kLong = std::chrono::seconds(60);

TimePoint late() {
  return Clock::system().now() + kLong;
}

std::shared_ptr<Peer> open_peer(const std::string& name) {
  Peer::Options options;
  options.name = name;
  options.uses_tcp = false;
  return std::move(Peer::make(options)).value();
}

// A caller, and a server whose function "hold" keeps its requests until the test answers.
class PendingCallTest : public ::testing::Test {
 protected:
  PendingCallTest() {
    const Result<std::string> address =
        server_->listen("unix:@reverie-" + std::to_string(random_seed()));
    EXPECT_TRUE(address.ok()) << address.status().to_string();
    EXPECT_TRUE(caller_->connect(*address).ok());
    EXPECT_TRUE(server_
                    ->define("hold",
                             [this](Request request) {
                               MutexLock lock(mutex_);
                               held_.push_back(std::move(request));
                               changed_.notify_all();
                             })
                    .ok());
  }
  ~PendingCallTest() override { server_->close(); }

  std::shared_ptr<PendingCall> begin(const CallOptions& options = {}) {
    auto on_done = std::make_shared<PendingCall::OnDone>([this](const auto& call_that_ended) {
      EXPECT_TRUE(call_that_ended->is_done());
      MutexLock lock(mutex_);
      ++on_done_;
      changed_.notify_all();
    });
    auto call = PendingCall::begin(caller_, "server", "hold", number_payload(7), options,
                                   std::move(on_done));
    EXPECT_TRUE(call.ok()) << call.status().to_string();
    return std::move(call).value();
  }
  // Answers the oldest held request with the double of its number.
  void answer() {
    const TimePoint until = late();
    MutexLock lock(mutex_);
    while (held_.empty() && Clock::system().wait_until(changed_, mutex_, until)) {
    }
    ASSERT_FALSE(held_.empty());
    const Request request = std::move(held_.front());
    held_.erase(held_.begin());
    server_->answer(request.id, number_payload(2 * number_of(request.message.payload)));
  }
  int wait_until_told() {
    const TimePoint until = late();
    MutexLock lock(mutex_);
    while (on_done_ == 0 && Clock::system().wait_until(changed_, mutex_, until)) {
    }
    return on_done_;
  }

  Mutex mutex_;
  CondVar changed_;
  std::vector<Request> held_ REVERIE_GUARDED_BY(mutex_);
  int on_done_ REVERIE_GUARDED_BY(mutex_) = 0;
  std::shared_ptr<Peer> server_ = open_peer("server");
  std::shared_ptr<Peer> caller_ = open_peer("caller");
};

TEST_F(PendingCallTest, IsDoneOnlyOnceTheAnswerArrives) {
  const auto call = begin();
  EXPECT_EQ(call->peer(), "server");
  EXPECT_EQ(call->function(), "hold");
  EXPECT_FALSE(call->is_done());
  EXPECT_FALSE(call->wait_until(Clock::system().now()));
  answer();
  ASSERT_TRUE(call->wait_until(late()));
  EXPECT_TRUE(call->is_done());
  EXPECT_EQ(call->result().kind, CallResult::Kind::kAnswer) << call->result().status.to_string();
  EXPECT_EQ(number_of(call->result().payload), 14);
}

TEST_F(PendingCallTest, EndsWhenItIsCancelled) {
  const auto call = begin();
  call->cancel();
  ASSERT_TRUE(call->wait_until(late()));
  EXPECT_EQ(call->result().kind, CallResult::Kind::kFailed);
  EXPECT_EQ(call->result().status.code(), StatusCode::kCancelled);
  call->cancel();  // the call has ended already
}

TEST_F(PendingCallTest, EndsAtItsDeadline) {
  CallOptions options;
  options.deadline = Clock::system().now();
  const auto call = begin(options);
  ASSERT_TRUE(call->wait_until(late()));
  EXPECT_EQ(call->result().status.code(), StatusCode::kDeadlineExceeded);
}

TEST_F(PendingCallTest, NotifiesOnceHoweverOftenItWasAsked) {
  const auto call = begin();
  EXPECT_TRUE(call->notify_when_done());
  EXPECT_TRUE(call->notify_when_done());
  answer();
  EXPECT_EQ(wait_until_told(), 1);
  EXPECT_TRUE(call->notify_when_done()) << "what was told has not happened yet";
  call->set_notified();
  EXPECT_FALSE(call->notify_when_done());
}

TEST_F(PendingCallTest, NotifiesOnlyIfAsked) {
  const auto quiet = begin();
  const auto loud = begin();
  EXPECT_TRUE(loud->notify_when_done());
  answer();
  answer();
  ASSERT_TRUE(quiet->wait_until(late()));
  EXPECT_EQ(wait_until_told(), 1);
  EXPECT_FALSE(quiet->notify_when_done()) << "it is done, and its caller knows";
}

TEST_F(PendingCallTest, IsCancelledWithItsPeerAndOutlivesIt) {
  const auto call = begin();
  caller_.reset();
  ASSERT_TRUE(call->wait_until(late()));
  EXPECT_EQ(call->result().status.code(), StatusCode::kCancelled);
  call->cancel();
}

TEST_F(PendingCallTest, CannotBeginOnAClosedPeer) {
  caller_->close();
  const auto call = PendingCall::begin(caller_, "server", "hold", number_payload(1), {});
  EXPECT_EQ(call.status().code(), StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace reverie
