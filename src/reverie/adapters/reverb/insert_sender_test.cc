// When a client sends its items, tested with a server whose answers the test writes.
#include "reverie/adapters/reverb/insert_sender.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/grpc/grpc_server.h"
#include "tests/support/eventually.h"
#include "tests/support/items.h"

namespace reverie {
namespace {

// A server that records what arrives on its insert streams, and answers nothing by itself.
class ScriptedServer {
 public:
  struct Request {
    std::size_t stream = 0;
    std::string session;
    std::vector<ItemKey> keys;
    std::uint64_t first_number = 0;
    std::uint64_t settled_below = 0;
    std::size_t chunks = 0;
  };

  explicit ScriptedServer(IoThreads& io_threads) : server_(io_threads, {}) {
    server_.add_method(
        format("{}InsertStream", wire::kServicePath), [this](std::shared_ptr<GrpcServerCall> call) {
          MutexLock lock(mutex_);
          calls_.push_back(call);
          const auto& fields = call->info().metadata;
          const auto session =
              std::ranges::find(fields, wire::kSessionName, &GrpcMetadata::value_type::first);
          return std::make_shared<Events>(*this, calls_.size() - 1, session->second);
        });
    addresses_ = server_.listen({"localhost:0"}).value();
  }

  const std::string& address() const { return addresses_.front(); }
  std::vector<Request> requests() {
    MutexLock lock(mutex_);
    return requests_;
  }
  // The requests, once there are `count` of them.
  std::vector<Request> wait_for(std::size_t count) {
    EXPECT_TRUE(test::eventually([&] { return requests().size() >= count; }));
    return requests();
  }
  void write(std::size_t stream, std::string response) {
    call(stream)->write(GrpcPayload::of(std::move(response)));
  }
  void finish(std::size_t stream, const Status& status) { call(stream)->finish(status); }

 private:
  class Events final : public GrpcServerEvents {
   public:
    Events(ScriptedServer& server, std::size_t stream, std::string session)
        : server_(server), stream_(stream), session_(std::move(session)) {}
    void on_message(Ref<GrpcMessage> message) override {
      const auto read = wire::read_insert_request(message->bytes()).value();
      Request request;
      request.stream = stream_;
      request.session = session_;
      for (const wire::WireItem& item : read.items) request.keys.push_back(item.key);
      request.first_number = read.first_number;
      request.settled_below = read.settled_below;
      request.chunks = read.chunks.size();
      MutexLock lock(server_.mutex_);
      server_.requests_.push_back(std::move(request));
    }
    void on_half_close() override {}
    void on_end(const Status&) override {}

   private:
    ScriptedServer& server_;
    const std::size_t stream_;
    const std::string session_;
  };

  std::shared_ptr<GrpcServerCall> call(std::size_t stream) {
    MutexLock lock(mutex_);
    return calls_.at(stream);
  }

  Mutex mutex_;
  std::vector<std::shared_ptr<GrpcServerCall>> calls_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Request> requests_ REVERIE_GUARDED_BY(mutex_);
  GrpcServer server_;
  std::vector<std::string> addresses_;
};

class InsertSenderTest : public ::testing::Test {
 protected:
  void TearDown() override { client_->close(); }

  RequestId insert(ItemKey key, TimePoint deadline = TimePoint::max()) {
    Item item = testing::make_item(key, 1.0);
    return client_->insert({"t", {&item, 1}, deadline}, [this, key](InsertResult result) {
      MutexLock lock(mutex_);
      done_.emplace(key, std::move(result));
    });
  }
  std::set<ItemKey> done() {
    MutexLock lock(mutex_);
    std::set<ItemKey> keys;
    for (const auto& [key, result] : done_) keys.insert(key);
    return keys;
  }
  void wait_for_done(const std::set<ItemKey>& keys) {
    EXPECT_TRUE(test::eventually([&] { return done() == keys; }));
  }
  StatusCode code_of(ItemKey key) {
    MutexLock lock(mutex_);
    return done_.at(key).status.code();
  }
  // Confirms the numbers [first, first + count) of those sent, and that `taken` requests were read.
  static std::string answer(std::uint64_t first, std::uint64_t count, std::uint64_t taken) {
    const wire::NumberRun run{first, count};
    return wire::write_numbered_response({&run, count == 0 ? 0u : 1u}, taken);
  }
  using Keys = std::vector<ItemKey>;
  static constexpr TimePoint kNow{};  // a deadline that has passed before anything is sent

  IoThreads io_threads_{2};
  ScriptedServer server_{io_threads_};
  std::shared_ptr<ReverbClient> client_ =
      ReverbClient::open(io_threads_, server_.address()).value();
  Mutex mutex_;
  std::map<ItemKey, InsertResult> done_ REVERIE_GUARDED_BY(mutex_);
};

TEST_F(InsertSenderTest, ASingleItemIsSentAtOnceAndLaterOnesShareTheNextMessage) {
  insert(1);
  EXPECT_EQ(server_.wait_for(1)[0].keys, (Keys{1}));
  server_.write(0, answer(1, 1, 1));
  wait_for_done({1});
  // The client now knows that the server reports what it has read.
  insert(2);
  server_.wait_for(2);
  for (ItemKey key = 3; key <= 30; ++key) insert(key);
  server_.write(0, answer(2, 0, 2));  // read, but held back by the limiter
  const auto requests = server_.wait_for(3);
  EXPECT_EQ(requests[1].keys, (Keys{2}));
  EXPECT_EQ(requests[2].keys.size(), 28u) << "all that waited";
  EXPECT_EQ(requests[2].first_number, 3u);
  EXPECT_EQ(requests[2].settled_below, 2u);
  EXPECT_EQ(done(), (std::set<ItemKey>{1}));
  server_.write(0, answer(2, 29, 3));
  EXPECT_TRUE(test::eventually([&] { return done().size() >= 30; }));
}

TEST_F(InsertSenderTest, AServerThatConfirmsByKeyIsSentOnlyAFewMessagesAhead) {
  for (ItemKey key = 1; key <= 4; ++key) {
    insert(key);
    EXPECT_EQ(server_.wait_for(key)[key - 1].keys, (Keys{key}));
  }
  for (ItemKey key = 5; key <= 9; ++key) insert(key);
  const ItemKey third = 3;
  server_.write(0, wire::write_insert_response({&third, 1}));
  EXPECT_EQ(server_.wait_for(5)[4].keys, (Keys{5, 6, 7, 8, 9}));
  wait_for_done({3});
}

TEST_F(InsertSenderTest, UnconfirmedItemsAreSentAgainWithTheirNumbersAndChunks) {
  insert(1);
  server_.wait_for(1);
  server_.write(0, answer(1, 0, 1));
  insert(2);
  server_.wait_for(2);
  server_.write(0, answer(1, 1, 2));
  wait_for_done({1});
  insert(3);
  server_.wait_for(3);
  server_.finish(0, unavailable("going away"));
  const auto requests = server_.wait_for(4);
  EXPECT_EQ(requests[3].stream, 1u);
  EXPECT_EQ(requests[3].keys, (Keys{2, 3}));
  EXPECT_EQ(requests[3].first_number, 2u);
  EXPECT_EQ(requests[3].chunks, 2u);
  EXPECT_EQ(requests[3].session, requests[0].session);
  server_.write(1, answer(2, 2, 1));
  wait_for_done({1, 2, 3});
}

TEST_F(InsertSenderTest, EachTableOfEachClientHasASessionOfItsOwn) {
  const std::shared_ptr<ReverbClient> other =
      ReverbClient::open(io_threads_, server_.address()).value();
  std::set<std::string> sessions;
  for (const auto& client : {client_, other}) {
    for (const std::string_view table : {"t", "u"}) {
      Item item = testing::make_item(1, 1.0);
      client->insert({table, {&item, 1}, TimePoint::max()}, [](const InsertResult&) {});
      sessions.insert(server_.wait_for(sessions.size() + 1).back().session);
    }
  }
  EXPECT_EQ(sessions.size(), 4u);
  other->close();
}

TEST_F(InsertSenderTest, ACancelledItemIsWithdrawnAndItsNumberNotReused) {
  insert(1);
  const RequestId second = insert(2);
  insert(3);
  server_.wait_for(3);
  client_->cancel(second);
  wait_for_done({2});
  const auto requests = server_.wait_for(5);
  EXPECT_EQ(requests[3].keys, (Keys{1}));
  EXPECT_EQ(requests[3].stream, 1u);
  EXPECT_EQ(requests[3].first_number, 1u);
  EXPECT_EQ(requests[4].keys, (Keys{3}));
  EXPECT_EQ(requests[4].first_number, 3u);
}

TEST_F(InsertSenderTest, ARefusalFailsOnlyTheRefusedItem) {
  insert(1);
  server_.wait_for(1);
  server_.write(0, answer(1, 1, 1));
  wait_for_done({1});
  insert(2);
  server_.wait_for(2);
  for (ItemKey key = 3; key <= 5; ++key) insert(key);
  server_.write(0, answer(2, 0, 2));  // item 2 waits for its table
  EXPECT_EQ(server_.wait_for(3)[2].keys, (Keys{3, 4, 5}));
  server_.write(0, answer(2, 0, 3));
  insert(6);
  EXPECT_EQ(server_.wait_for(4)[3].keys, (Keys{6}));
  server_.finish(0, invalid_argument("not like this"));
  // One of 3, 4 and 5 is at fault.
  auto requests = server_.wait_for(8);
  for (ItemKey key = 2; key <= 5; ++key) {
    EXPECT_EQ(requests[key + 2].keys, (Keys{key}));
    EXPECT_EQ(requests[key + 2].first_number, key);
    EXPECT_EQ(requests[key + 2].stream, 1u);
  }
  EXPECT_EQ(done(), (std::set<ItemKey>{1}));
  server_.write(1, answer(3, 1, 2));
  server_.write(1, answer(2, 0, 3));
  server_.finish(1, invalid_argument("not like this"));
  wait_for_done({1, 3, 4});
  requests = server_.wait_for(11);
  EXPECT_EQ(requests[8].keys, (Keys{2}));
  EXPECT_EQ(requests[9].keys, (Keys{5}));
  EXPECT_EQ(requests[10].keys, (Keys{6}));
  EXPECT_EQ(requests[10].first_number, 6u);
  server_.write(2, answer(2, 1, 1));
  server_.write(2, answer(5, 2, 3));
  wait_for_done({1, 2, 3, 4, 5, 6});
  MutexLock lock(mutex_);
  for (const auto& [key, result] : done_) {
    EXPECT_EQ(result.status.code(), key == 4 ? StatusCode::kInvalidArgument : StatusCode::kOk);
  }
}

TEST_F(InsertSenderTest, AnItemThatIsAloneInItsRefusedMessageIsNotSentAgain) {
  insert(1);
  server_.wait_for(1);
  server_.write(0, answer(1, 0, 1));  // waits for its table
  insert(2);
  server_.wait_for(2);
  server_.write(0, answer(1, 0, 2));
  server_.finish(0, not_found("no such table"));
  wait_for_done({2});
  EXPECT_EQ(server_.wait_for(3)[2].keys, (Keys{1}));
  server_.write(1, answer(1, 1, 1));
  wait_for_done({1, 2});
  insert(3);
  EXPECT_EQ(server_.wait_for(4)[3].first_number, 3u);
}

// Which items such a server has inserted is not known: sent again, they might be inserted twice.
TEST_F(InsertSenderTest, ARefusalByAServerThatSendsNoNumbersFailsItemsInFlight) {
  insert(1);
  insert(2);
  server_.wait_for(1);
  server_.finish(0, invalid_argument("not like this"));
  wait_for_done({1, 2});
  {
    MutexLock lock(mutex_);
    EXPECT_EQ(done_.at(1).status.code(), StatusCode::kInvalidArgument);
  }
  const std::size_t before = server_.requests().size();
  insert(3);
  const auto requests = server_.wait_for(before + 1);
  EXPECT_EQ(requests.back().keys, (Keys{3}));
  EXPECT_EQ(requests.back().first_number, 3u);
}

TEST_F(InsertSenderTest, AnEndThatIsNotTheFaultOfAnItemFailsAllAndIsNotTriedAgain) {
  insert(1);
  server_.wait_for(1);
  server_.write(0, answer(1, 0, 1));
  insert(2);
  server_.wait_for(2);
  server_.write(0, answer(1, 0, 2));
  server_.finish(0, resource_exhausted("the server is full"));
  wait_for_done({1, 2});
  insert(3);
  EXPECT_EQ(server_.wait_for(3)[2].keys, (Keys{3}));
  // An item's code, but the server has taken no message.
  server_.finish(1, failed_precondition("not this stream"));
  wait_for_done({1, 2, 3});
  EXPECT_EQ(server_.requests().size(), 3u);
}

TEST_F(InsertSenderTest, AnItemWithoutTimeToWaitIsInsertedIfThereIsRoom) {
  insert(1, kNow);
  EXPECT_EQ(server_.wait_for(1)[0].keys, (Keys{1}));
  server_.write(0, answer(1, 1, 1));
  wait_for_done({1});
  EXPECT_EQ(code_of(1), StatusCode::kOk);
  insert(2, kNow);
  EXPECT_EQ(server_.wait_for(2)[1].stream, 0u) << "the stream goes on";
  server_.write(0, answer(2, 1, 2));
  wait_for_done({1, 2});
  EXPECT_EQ(code_of(2), StatusCode::kOk);
}

TEST_F(InsertSenderTest, AnItemWithoutTimeToWaitFailsOnceItIsKnownToWait) {
  insert(1, kNow);
  server_.wait_for(1);
  server_.write(0, answer(1, 0, 1));  // it waits for its table, or for a journal
  const auto requests = server_.wait_for(2);
  EXPECT_EQ(requests[1].stream, 1u);
  EXPECT_EQ(requests[1].keys, (Keys{1}));
  EXPECT_EQ(requests[1].first_number, 1u);
  EXPECT_EQ(done(), std::set<ItemKey>());
  server_.write(1, answer(1, 0, 1));  // for its table
  wait_for_done({1});
  EXPECT_EQ(code_of(1), StatusCode::kDeadlineExceeded);
  insert(2);
  EXPECT_EQ(server_.wait_for(3)[2].keys, (Keys{2})) << "the first one was withdrawn";
}

TEST_F(InsertSenderTest, AnItemThatWasOnlyWrittenToAJournalAtItsDeadlineIsInserted) {
  insert(1, kNow);
  server_.wait_for(1);
  server_.write(0, answer(1, 0, 1));
  server_.wait_for(2);
  server_.write(1, answer(1, 1, 1));
  wait_for_done({1});
  EXPECT_EQ(code_of(1), StatusCode::kOk);
}

TEST_F(InsertSenderTest, AnItemWithoutTimeToWaitIsNotHeldUpByOneThatWaits) {
  insert(1);
  server_.wait_for(1);
  server_.write(0, answer(1, 0, 1));
  insert(2, kNow);
  // The server reads no more, so the next stream's message has both items.
  ASSERT_TRUE(test::eventually([&] { return server_.requests().back().stream == 1; }));
  EXPECT_EQ(server_.requests().back().keys, (Keys{1, 2}));
  server_.write(1, answer(1, 0, 1));
  ASSERT_TRUE(test::eventually([&] { return server_.requests().back().stream == 2; }));
  EXPECT_EQ(server_.requests().back().keys, (Keys{1, 2}));
  server_.write(2, answer(1, 0, 1));
  wait_for_done({2});
  EXPECT_EQ(code_of(2), StatusCode::kDeadlineExceeded);
  ASSERT_TRUE(test::eventually([&] { return server_.requests().back().stream == 3; }));
  EXPECT_EQ(server_.requests().back().keys, (Keys{1}));
}

TEST_F(InsertSenderTest, AnItemWhoseServerDoesNotAnswerFailsSoonAfterItsDeadline) {
  insert(1, kNow);
  server_.wait_for(1);
  wait_for_done({1});
  EXPECT_EQ(code_of(1), StatusCode::kDeadlineExceeded);
}

TEST_F(InsertSenderTest, AnInsertInAForkedChildIsRefused) {
  insert(1);
  server_.wait_for(1);
  const pid_t child = fork();
  if (child == 0) {
    Item item = testing::make_item(2, 1.0);
    StatusCode code = StatusCode::kOk;
    client_->insert({"t", {&item, 1}, TimePoint::max()},
                    [&code](const InsertResult& result) { code = result.status.code(); });
    _exit(code == StatusCode::kFailedPrecondition ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace reverie
