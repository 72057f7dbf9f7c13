// A store's client against a server that answers when the test says so.
#include "reverie/adapters/peer/peer_store_client.h"

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/adapters/peer/store_link.h"
#include "reverie/base/mutex.h"
#include "reverie/door/door.h"
#include "reverie/native_wire/packed_writer.h"
#include "reverie/rpc/handshake.h"
#include "reverie/service/blocking.h"
#include "reverie/service/sample_batch.h"
#include "reverie/store_messages/store_wire.h"
#include "tests/support/eventually.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"
#include "tests/support/within.h"

namespace reverie {
namespace {

using store_wire::StoreCall;
using test::eventually;

// Welcomes a client, and keeps its sample requests. Other requests are not answered.
class ScriptedStore final : public StoreLinkEvents,
                            public std::enable_shared_from_this<ScriptedStore> {
 public:
  struct Asked {
    std::uint64_t id = 0;
    std::vector<std::uint64_t> received;
  };

  void serve(LinkLoops& loops, AcceptedConnection incoming) {
    IoLoop& loop = incoming.connection->loop();
    const auto held = std::make_shared<AcceptedConnection>(std::move(incoming));
    ++connection_count;
    loop.post([self = shared_from_this(), &loops, held] {
      self->link_ = StoreLink::make(loops, std::move(held->connection), self, FrameLimits());
      self->link_->start(held->received);
    });
  }
  void close() {
    if (link_) link_->hang_up();
  }

  void on_frames(std::vector<Frame> frames) override {
    for (const Frame& frame : frames) {
      if (frame.header.kind == FrameKind::kHello) {
        Greeting greeting;
        greeting.name = std::string(store_wire::kServerName);
        link_->send({FrameKind::kWelcome, 0, 0, 0},
                    std::make_shared<const Message>(encode(greeting)));
      } else if (frame.header.kind == FrameKind::kResume) {
        link_->trust();
        Resumption resumed;
        resumed.session = 1;
        link_->send({FrameKind::kResumed, 0, 0, 0},
                    std::make_shared<const Message>(encode(resumed)));
      } else if (frame.header.kind == FrameKind::kCall &&
                 frame.header.sequence == static_cast<std::uint64_t>(StoreCall::kSample)) {
        const auto ask = store_wire::read_sample(frame.message.payload);
        ASSERT_TRUE(ask.ok());
        MutexLock lock(mutex_);
        asked_.push_back({frame.header.call, ask->received});
      } else if (frame.header.kind == FrameKind::kCall && hangs_up) {
        link_->hang_up();
      } else if (frame.header.kind == FrameKind::kCall && !refuses_with.ok()) {
        link_->send({FrameKind::kRefused, 0, 0, 0},
                    store_wire::message_of(store_wire::write_status(refuses_with)));
      }
    }
  }
  void on_lost(const Status&) override {}
  void on_room() override {}

  // Set before the first connection.
  bool hangs_up = false;  // at each other request
  Status refuses_with;    // likewise
  std::atomic<int> connection_count{0};

  std::size_t asked_count() {
    MutexLock lock(mutex_);
    return asked_.size();
  }
  Asked asked(std::size_t i) {
    MutexLock lock(mutex_);
    return asked_.at(i);
  }
  // Sends `count` items, as the last part or as one before it.
  void answer(std::uint64_t id, std::size_t count, bool is_last) {
    SampledItem item;
    item.trajectory = stored_.trajectory.view();
    SampleBatch batch;
    for (std::size_t i = 0; i < count; ++i) batch.add(item);
    store_wire::SamplePart part;
    part.tickets.resize(count);
    PackedWriter writer;
    std::size_t next = 0;
    Result<PayloadBuilder> packed = writer.write_bare(batch, &next);
    ASSERT_TRUE(packed.ok() && next == count);
    const GrpcPayload built = packed->build();
    const auto bytes = std::make_shared<std::vector<std::byte>>();
    for (std::size_t i = 0; i < built.piece_count(); ++i) {
      bytes->insert(bytes->end(), built.piece(i).begin(), built.piece(i).end());
    }
    part.names = wire::ColumnNames{{"x"}, "x"};
    Payload payload = store_wire::write_part(part);
    payload.bulk.push_back({*bytes, bytes});
    link_->send({FrameKind::kAnswer, static_cast<std::uint64_t>(StoreCall::kSample),
                 is_last ? 0 : store_wire::kMoreFollows, id},
                store_wire::message_of(std::move(payload)));
  }

 private:
  const Item stored_ = testing::make_item(1, 1.0);
  std::shared_ptr<StoreLink> link_;
  Mutex mutex_;
  std::vector<Asked> asked_ REVERIE_GUARDED_BY(mutex_);
};

class PeerStoreClientTest : public ::testing::Test {
 protected:
  void SetUp() override {
    DoorProtocol protocol;
    protocol.name = "reverie-store";
    protocol.first_bytes = {std::string(store_wire::kFirstBytes)};
    protocol.serve = [this](AcceptedConnection incoming) {
      server_->serve(server_loops_, std::move(incoming));
    };
    door_.add_protocol(std::move(protocol));
    address_ = door_.listen({"localhost:0"}).value().front();
    client_ = PeerStoreClient::open(loops_, address_, {}).value();
  }
  void TearDown() override {
    client_->close();
    server_->close();
    door_.close();
  }
  std::shared_ptr<PeerStoreClient> client_that_retries(Duration retry_time) {
    return PeerStoreClient::open(loops_, address_, {.retry_time = retry_time}).value();
  }
  // Returns the request's id; its status is in results_ once it is complete.
  RequestId sample(std::size_t count) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = count;
    const std::size_t index = request_count_++;
    return client_->sample(std::move(request), [this, index](const SampleResult& result) {
      MutexLock lock(mutex_);
      results_.emplace(index, result.status);
    });
  }
  std::size_t result_count() {
    MutexLock lock(mutex_);
    return results_.size();
  }

  IoThreads server_threads_{1};
  LinkLoops server_loops_{server_threads_};
  const std::shared_ptr<ScriptedStore> server_ = std::make_shared<ScriptedStore>();
  Door door_{server_threads_, {}};
  IoThreads threads_{1};
  LinkLoops loops_{threads_};
  std::string address_;
  std::shared_ptr<PeerStoreClient> client_;
  std::size_t request_count_ = 0;
  Mutex mutex_;
  std::map<std::size_t, Status> results_ REVERIE_GUARDED_BY(mutex_);
};

TEST_F(PeerStoreClientTest, ASampleThatHasNotArrivedIsNotAcknowledged) {
  using Ids = std::vector<std::uint64_t>;
  const RequestId waits = sample(2);
  const RequestId quick = sample(1);
  ASSERT_TRUE(eventually([&] { return server_->asked_count() == 2; }));
  server_->answer(quick, 1, /*is_last=*/true);
  ASSERT_TRUE(eventually([&] { return result_count() == 1; }));
  (void)sample(1);
  ASSERT_TRUE(eventually([&] { return server_->asked_count() == 3; }));
  EXPECT_EQ(server_->asked(2).received, (Ids{quick})) << "although an earlier one waits";

  server_->answer(waits, 1, /*is_last=*/false);
  const RequestId last = server_->asked(2).id;
  server_->answer(last, 1, /*is_last=*/true);
  ASSERT_TRUE(eventually([&] { return result_count() == 2; })) << "both parts have been read";
  (void)sample(1);
  ASSERT_TRUE(eventually([&] { return server_->asked_count() == 4; }));
  EXPECT_EQ(server_->asked(3).received, (Ids{last})) << "the other one's last part has not arrived";

  server_->answer(waits, 1, /*is_last=*/true);
  ASSERT_TRUE(eventually([&] { return result_count() == 3; }));
  (void)sample(1);
  ASSERT_TRUE(eventually([&] { return server_->asked_count() == 5; }));
  EXPECT_EQ(server_->asked(4).received, (Ids{waits}));
}

// The loop's thread reads one part after another, so one request is nearly always being read while
// all are cancelled.
TEST_F(PeerStoreClientTest, ARequestThatIsCancelledWhileItsPartIsReadEnds) {
  constexpr std::size_t kRequests = 20;
  constexpr std::size_t kItems = 4000;
  std::vector<RequestId> ids;
  for (std::size_t round = 0; round < 3; ++round) {
    ids.clear();
    for (std::size_t i = 0; i < kRequests; ++i) ids.push_back(sample(2 * kItems));
    const std::size_t begun = (round + 1) * kRequests;
    ASSERT_TRUE(eventually([&] { return server_->asked_count() == begun; }));
    std::atomic<bool> goes_on{false};
    std::atomic<bool> has_begun{false};
    threads_.loop(0).post([&] {
      (void)eventually([&] { return goes_on.load(); });
      has_begun = true;
    });
    for (const RequestId id : ids) server_->answer(id, kItems, /*is_last=*/false);
    goes_on = true;
    ASSERT_TRUE(eventually([&] { return has_begun.load(); }));
    const TimePoint until = Clock::system().now() + std::chrono::microseconds(700);
    while (Clock::system().now() < until) {
    }
    for (const RequestId id : ids) client_->cancel(id);
    ASSERT_TRUE(eventually([&] { return result_count() == begun; })) << "round " << round;
  }
  MutexLock lock(mutex_);
  for (const auto& [index, status] : results_) {
    EXPECT_EQ(status.code(), StatusCode::kCancelled) << index << ": " << status.message();
  }
}

TEST_F(PeerStoreClientTest, AServerThatHangsUpAtEachRequestIsTriedForTheTimeToRetryWithPauses) {
  server_->hangs_up = true;
  const auto client = client_that_retries(std::chrono::milliseconds(500));
  const TimePoint begin = Clock::system().now();
  Item item = testing::make_item(1, 1.0);
  const InsertResult inserted = insert_and_wait(*client, {"t", {&item, 1}});
  expect_refused(inserted.status, StatusCode::kUnavailable, {"0.5 s"});
  expect_refused(info_and_wait(*client).status(), StatusCode::kUnavailable, {"0.5 s"});
  EXPECT_TRUE(test::ended_within(begin, 5.0));
  EXPECT_LT(server_->connection_count, 40);
}

TEST_F(PeerStoreClientTest, ARefusalByTheServerEndsRequestsForGood) {
  server_->refuses_with = resource_exhausted("a frame is too large");
  const auto client = client_that_retries(Duration::max());
  Item item = testing::make_item(1, 1.0);
  expect_refused(insert_and_wait(*client, {"t", {&item, 1}}).status, StatusCode::kResourceExhausted,
                 {"a frame is too large"});
  EXPECT_EQ(server_->connection_count, 1);
}

}  // namespace
}  // namespace reverie
