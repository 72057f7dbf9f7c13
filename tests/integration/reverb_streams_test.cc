// InsertStream and SampleStream on a real store, without a socket: what Reverb's clients send and
// receive.
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/insert_stream.h"
#include "reverie/adapters/reverb/sample_stream.h"
#include "reverie/codec/column_codec.h"
#include "reverie/gather/batch.h"
#include "reverie/grpc/message_reader.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/service/blocking.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_grpc_call.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::table_options;
using wire::Bytes;

class ReverbStreams : public ::testing::Test {
 protected:
  void open(std::vector<TableOptions> tables) {
    StoreOptions options;
    options.clock = &clock_;
    service_ = LocalService::open(tables, options).value();
    store_ = std::make_shared<ReverbStore>(service_, std::size_t{1} << 20, clock_);
    store_->kept_bytes_max = std::size_t{1} << 20;
    for (const TableOptions& table : tables) {
      store_->tables[table.name] = {wire::ColumnNames::of(table.signature),
                                    table.max_size >= 20 ? 2u : 1u};
    }
  }
  // A request that waits in the store holds its stream, and the stream holds the store: so the code
  // that opens a store closes it, as a server does.
  void TearDown() override {
    if (service_) service_->close();
  }
  void open_fifo() { open({table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))}); }
  void open_queue(std::int64_t size) {
    TableOptions options = table_options("t", "Fifo", "Fifo", size, RateLimiter::queue(size));
    options.max_times_sampled = 1;
    open({options});
  }

  struct Insert {
    std::shared_ptr<FakeServerCall> call = std::make_shared<FakeServerCall>();
    std::shared_ptr<InsertStream> stream;
  };
  Insert insert_stream() {
    Insert made;
    made.stream = std::make_shared<InsertStream>(store_, made.call);
    return made;
  }
  // A new stream of an insert session.
  Insert session_stream(char digit = 'a', const std::string& ordinal = {}) {
    Insert made;
    GrpcMetadata metadata{{std::string(wire::kSessionName), std::string(32, digit)}};
    if (!ordinal.empty()) metadata.emplace_back(wire::kStreamName, ordinal);
    made.call = std::make_shared<FakeServerCall>(true, std::move(metadata));
    made.stream = std::make_shared<InsertStream>(store_, made.call);
    return made;
  }
  static Ref<GrpcMessage> numbered_request(std::uint64_t first,
                                           const std::vector<wire::WireItem>& items,
                                           const std::vector<std::string>& chunks,
                                           std::uint64_t settled_below = 1) {
    std::vector<Bytes> spans;
    for (const std::string& c : chunks) spans.push_back(wire::bytes_of(c));
    std::string written;
    for (const wire::WireItem& i : items) wire::put_item(written, i);
    return grpc_message(
        wire::write_numbered_request(spans, written, {}, first, settled_below).flat());
  }
  // The ranges of numbers confirmed since the last call; no keys may be confirmed.
  static std::vector<wire::NumberRun> runs(FakeServerCall& call) {
    std::vector<wire::NumberRun> found;
    for (const std::string& message : call.take_written()) {
      const auto response = wire::read_insert_response(wire::bytes_of(message)).value();
      EXPECT_TRUE(response.keys.empty());
      found.insert(found.end(), response.confirmed.begin(), response.confirmed.end());
    }
    return found;
  }
  using Runs = std::vector<wire::NumberRun>;

  struct Sample {
    std::shared_ptr<FakeServerCall> call = std::make_shared<FakeServerCall>();
    std::shared_ptr<SampleStream> stream;
  };
  Sample sample_stream() {
    Sample made;
    made.stream = std::make_shared<SampleStream>(store_, made.call);
    return made;
  }

  // One chunk of float32 scalars value, value + 1, ...
  static std::string chunk(ChunkKey key, float value, std::uint32_t rows = 1) {
    const Ref<Chunk> made = testing::float_chunk(value, rows, {key, 1, 0});
    return wire::write_chunk(*made, 0, rows, key).value();
  }
  static wire::WireItem item(ItemKey key, ChunkKey chunk_key, std::int32_t length = 1,
                             std::string_view table = "t") {
    wire::WireItem made;
    made.key = key;
    made.table = table;
    made.priority = 1.5;
    made.slices = {{chunk_key, 0, length, 0}};
    made.columns = {{0, 1, false}};
    return made;
  }
  static Ref<GrpcMessage> insert_request(const std::vector<std::string>& chunks,
                                         const std::vector<wire::WireItem>& items,
                                         const std::vector<std::uint64_t>& keep = {}) {
    std::vector<Bytes> spans;
    for (const std::string& c : chunks) spans.push_back(wire::bytes_of(c));
    return grpc_message(wire::write_insert_request(spans, items, keep).flat());
  }
  static Ref<GrpcMessage> sample_request(std::int64_t count, std::int64_t timeout_ms = -1,
                                         std::string_view table = "t") {
    return grpc_message(wire::write_sample_request({table, count, timeout_ms}));
  }
  static std::vector<ItemKey> confirmed(FakeServerCall& call) {
    std::vector<ItemKey> keys;
    for (const std::string& message : call.take_written()) {
      const auto more = wire::read_insert_response(wire::bytes_of(message)).value().keys;
      keys.insert(keys.end(), more.begin(), more.end());
    }
    return keys;
  }
  // The samples received: their keys, and the number of parts of each.
  static std::vector<std::pair<ItemKey, int>> samples(FakeServerCall& call) {
    std::vector<std::pair<ItemKey, int>> found;
    int parts = 0;
    ItemKey key = 0;
    for (const std::string& message : call.take_written()) {
      const auto entries = wire::read_sample_response(wire::bytes_of(message)).value();
      for (const auto& entry : entries) {
        EXPECT_EQ(entry.info.has_value(), parts == 0);
        if (entry.info) key = entry.info->item.key;
        ++parts;
        EXPECT_FALSE(entry.chunks.empty());
        if (!entry.end_of_sequence) continue;
        found.emplace_back(key, parts);
        parts = 0;
      }
    }
    EXPECT_EQ(parts, 0);
    return found;
  }
  std::int64_t size() { return info_and_wait(*service_).value().front().current_size; }
  BlockedReport blocked() { return why_blocked_and_wait(*service_, "t").value(); }

  ManualClock clock_;
  std::shared_ptr<LocalService> service_;
  std::shared_ptr<ReverbStore> store_;
};

TEST_F(ReverbStreams, AnItemIsConfirmedOnceItIsInserted) {
  open_fifo();
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1), chunk(8, 2)}, {}));
  EXPECT_TRUE(confirmed(*writer.call).empty());
  writer.stream->on_message(insert_request({}, {item(1, 7), item(2, 8)}, {8}));
  EXPECT_EQ(confirmed(*writer.call), (std::vector<ItemKey>{1, 2}));
  EXPECT_EQ(size(), 2);
  // Further items can use the kept chunk; the other one is gone.
  writer.stream->on_message(insert_request({}, {item(3, 8)}, {8}));
  EXPECT_EQ(confirmed(*writer.call), (std::vector<ItemKey>{3}));
  writer.stream->on_message(insert_request({}, {item(4, 7)}, {8}));
  expect_refused(writer.call->finished().value(), StatusCode::kInternal,
                 {"Could not find sequence chunk 7."});
}

TEST_F(ReverbStreams, ChunksOfAllStreamsShareABudgetThatIsReleased) {
  open_fifo();
  const std::string first = chunk(7, 1);
  store_->in_flight = std::make_shared<ByteBudget>(first.size() + first.size() / 2);
  Insert other = insert_stream();
  {
    Insert writer = insert_stream();
    writer.stream->on_message(insert_request({first}, {}));
    EXPECT_EQ(store_->in_flight->held_bytes(), first.size());
    other.stream->on_message(insert_request({chunk(8, 2)}, {}));
    expect_refused(other.call->finished().value(), StatusCode::kResourceExhausted,
                   {"bytes_in_flight"});
    // An item ends its chunk's time in flight, unless the chunk is to be kept.
    writer.stream->on_message(insert_request({}, {item(1, 7)}, {7}));
    EXPECT_EQ(store_->in_flight->held_bytes(), first.size());
  }
  EXPECT_EQ(store_->in_flight->held_bytes(), 0u);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(9, 1)}, {item(2, 9)}));
  EXPECT_EQ(store_->in_flight->held_bytes(), 0u);
  EXPECT_EQ(size(), 2);
}

// With any byte changed, a chunk that does not decode is refused when it arrives.
TEST_F(ReverbStreams, AChunkThatIsConfirmedCanBeDecoded) {
  open_fifo();
  const std::string good = chunk(7, 1, 3);
  int confirmed_count = 0;
  int refused_count = 0;
  for (std::size_t i = 0; i < good.size(); ++i) {
    for (const int flip : {0x01, 0x10, 0x80}) {
      std::string changed = good;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      Insert writer = insert_stream();
      writer.stream->on_message(insert_request({changed}, {item(1, 7, 3)}));
      if (confirmed(*writer.call).empty()) {
        ++refused_count;
        continue;
      }
      ++confirmed_count;
      SampleRequest request;
      request.table = "t";
      const SampleResult drawn = sample_and_wait(*service_, std::move(request));
      const Status assembled = assemble(drawn.batch, {}).status();
      EXPECT_TRUE(assembled.ok()) << "byte " << i << ": " << assembled.to_string();
      ASSERT_TRUE(reset_and_wait(*service_, "t").ok());
    }
  }
  EXPECT_GT(confirmed_count, 0);
  EXPECT_GT(refused_count, 0);
}

TEST_F(ReverbStreams, AChunkSentAgainIsIgnored) {
  open_fifo();
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7)}, {7}));
  writer.stream->on_message(insert_request({chunk(7, 50)}, {item(2, 7)}, {7}));
  EXPECT_EQ(confirmed(*writer.call), (std::vector<ItemKey>{1, 2}));
  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = 1;
  const SampleResult first = sample_and_wait(*service_, std::move(request));
  const Batch batch = assemble(first.batch, {}).value();
  float value = 0;
  std::memcpy(&value, batch.columns[0].bytes.data(), sizeof(value));
  EXPECT_EQ(value, 1);
}

// The message as a connection receives it for a stream that wants long chunks apart.
Ref<GrpcMessage> received(const std::string& bytes, const InsertStream& stream,
                          const Ref<MessagePool>& pool) {
  std::string framed(1, '\0');
  for (const int shift : {24, 16, 8, 0}) framed += static_cast<char>(bytes.size() >> shift);
  framed += bytes;
  MessageReader reader(bytes.size(), pool,
                       std::make_shared<ConnectionBudget>(std::size_t{1} << 30));
  reader.set_apart(stream.apart_field());
  auto part = std::as_bytes(std::span(framed));
  Ref<GrpcMessage> message;
  EXPECT_TRUE(reader.feed(&part, &message).ok());
  reader.release(*message);
  return message;
}

TEST_F(ReverbStreams, ALongChunkDoesNotKeepTheMemoryOfItsMessage) {
  open_fifo();
  constexpr std::uint64_t kStreamed = 20;
  constexpr std::uint32_t kRowsOfAll = 10'000;
  const auto pool = make_ref<MessagePool>();
  std::vector<std::string> chunks;
  std::vector<Bytes> spans;
  std::vector<wire::WireItem> items;
  std::size_t chunk_bytes = 0;
  for (std::uint64_t i = 1; i <= kStreamed; ++i) {
    chunks.push_back(chunk(i, static_cast<float>(i), kRowsOfAll));
    chunk_bytes += chunks.back().size();
    items.push_back(item(i, i, kRowsOfAll));
  }
  ASSERT_GT(chunks.front().size(), std::size_t{33} << 10);  // large enough for the pool
  // The last chunk is a repetition with other values: the first one counts.
  chunks.push_back(chunk(kStreamed, 500, kRowsOfAll));
  for (const std::string& c : chunks) spans.push_back(wire::bytes_of(c));
  Insert writer = insert_stream();
  writer.stream->on_message(
      received(wire::write_insert_request(spans, items, {}).flat(), *writer.stream, pool));
  EXPECT_EQ(confirmed(*writer.call).size(), kStreamed);
  EXPECT_LT(pool->kept_bytes(), 2 * chunks.back().size()) << "the one that was sent again";
  EXPECT_GE(pool->kept_bytes(), chunks.back().size());

  MutateRequest deletion;
  deletion.table = "t";
  std::vector<ItemKey> keys;
  for (ItemKey key = 1; key < kStreamed; ++key) keys.push_back(key);
  deletion.deletes = keys;
  ASSERT_TRUE(mutate_and_wait(*service_, deletion).status.ok());
  EXPECT_EQ(size(), 1);
  EXPECT_GE(pool->kept_bytes(), chunk_bytes) << "of all chunks but one, and of the one sent again";

  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = 1;
  const SampleResult left = sample_and_wait(*service_, std::move(request));
  const Batch batch = assemble(left.batch, {}).value();
  float value = 0;
  std::memcpy(&value, batch.columns[0].bytes.data(), sizeof(value));
  EXPECT_EQ(value, kStreamed);
}

TEST_F(ReverbStreams, ErrorsAreReportedInReverbsWords) {
  open_fifo();
  const auto expect_end = [&](const Ref<GrpcMessage>& message, StatusCode code,
                              const std::string& text) {
    Insert writer = insert_stream();
    writer.stream->on_message(message);
    ASSERT_TRUE(writer.call->finished().has_value());
    expect_refused(*writer.call->finished(), code, {text});
  };
  expect_end(insert_request({}, {}), StatusCode::kInvalidArgument,
             "ProcessIncomingRequest: Request lacks both chunks and item");
  expect_end(insert_request({}, {}, {3}), StatusCode::kInvalidArgument,
             "ProcessIncomingRequest: Request lacks both chunks and item");
  expect_end(insert_request({chunk(7, 1)}, {item(1, 7, 1, "none")}, {}), StatusCode::kNotFound,
             "Priority table none was not found");
  expect_end(insert_request({chunk(7, 1)}, {item(1, 7)}, {7, 7}), StatusCode::kFailedPrecondition,
             "Kept less chunks than expected.  chunks_.size() == 1 != keep_keys.size() == 2");
  expect_end(insert_request({chunk(7, 1)}, {item(1, 7)}, {9}), StatusCode::kFailedPrecondition,
             "chunks_.size() == 0 != keep_keys.size() == 1");
  wire::WireItem empty = item(1, 7);
  empty.columns.clear();
  expect_end(insert_request({chunk(7, 1)}, {empty}), StatusCode::kInvalidArgument,
             "Item trajectory must not be empty.");
  expect_end(grpc_message("\xff"), StatusCode::kInvalidArgument, "InsertStreamRequest");
}

TEST_F(ReverbStreams, ChunksBeyondTheBoundAreRefused) {
  open_fifo();
  store_->kept_bytes_max = 300;
  Insert writer = insert_stream();
  for (ChunkKey key = 1; !writer.call->finished(); ++key) {
    ASSERT_LT(key, 50u);
    writer.stream->on_message(insert_request({chunk(key, 0)}, {}));
  }
  expect_refused(*writer.call->finished(), StatusCode::kResourceExhausted, {"300"});
}

TEST_F(ReverbStreams, AWriterWhoseItemsWaitIsPaused) {
  open_queue(1);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7)}, {7}));
  EXPECT_FALSE(writer.call->is_paused());
  writer.stream->on_message(insert_request({}, {item(2, 7)}, {7}));
  EXPECT_TRUE(writer.call->is_paused());
  EXPECT_EQ(confirmed(*writer.call), (std::vector<ItemKey>{1}));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(1));
  EXPECT_EQ(samples(*sampler.call).size(), 1u);
  EXPECT_EQ(confirmed(*writer.call), (std::vector<ItemKey>{2})) << "the sample made room";
  EXPECT_FALSE(writer.call->is_paused());
}

TEST_F(ReverbStreams, AWriterThatDisconnectsLeavesNothingWaiting) {
  open_queue(1);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7), item(2, 7)}, {7}));
  EXPECT_EQ(blocked().inserts.waiting, 1);
  writer.stream->on_end(cancelled("gone"));
  EXPECT_EQ(blocked().inserts.waiting, 0);
  EXPECT_EQ(size(), 1);
}

TEST_F(ReverbStreams, WaitingItemsStayAfterAHalfClose) {
  open_queue(1);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7), item(2, 7)}, {7}));
  writer.stream->on_half_close();
  EXPECT_TRUE(writer.call->finished().value().ok());
  writer.stream->on_end({});
  EXPECT_EQ(blocked().inserts.waiting, 1);
}

TEST_F(ReverbStreams, AClosingStoreTellsWritersToRetry) {
  open_queue(1);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7), item(2, 7)}, {7}));
  service_->close();
  expect_refused(writer.call->finished().value(), StatusCode::kUnavailable,
                 {"Cancelling all calls"});
}

TEST_F(ReverbStreams, ItemsInsertedAtOnceAreConfirmedWithOneMessage) {
  open_fifo();
  Insert writer = session_stream();
  EXPECT_FALSE(writer.call->is_paused());
  writer.stream->on_message(
      numbered_request(1, {item(1, 7), item(2, 7), item(3, 7)}, {chunk(7, 1)}));
  const auto written = writer.call->take_written();
  ASSERT_EQ(written.size(), 1u);
  const auto response = wire::read_insert_response(wire::bytes_of(written[0])).value();
  EXPECT_EQ(response.confirmed, (Runs{{1, 3}}));
  EXPECT_EQ(response.requests_taken, 1u);
  EXPECT_EQ(size(), 3);
}

TEST_F(ReverbStreams, AMessageWhoseItemsWaitIsAcknowledgedAsRead) {
  open_queue(1);
  Insert writer = session_stream();
  writer.stream->on_message(numbered_request(1, {item(1, 7)}, {chunk(7, 1)}));
  EXPECT_EQ(runs(*writer.call), (Runs{{1, 1}}));
  writer.stream->on_message(numbered_request(2, {item(2, 7)}, {chunk(7, 1)}));
  const auto written = writer.call->take_written();
  ASSERT_EQ(written.size(), 1u);
  const auto response = wire::read_insert_response(wire::bytes_of(written[0])).value();
  EXPECT_TRUE(response.confirmed.empty());
  EXPECT_EQ(response.requests_taken, 2u);
}

TEST_F(ReverbStreams, AResentItemIsConfirmedAndNotInsertedAfterItWasSampled) {
  open_queue(5);
  Insert first = session_stream();
  first.stream->on_message(numbered_request(1, {item(1, 7), item(2, 7)}, {chunk(7, 1)}));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(2));
  EXPECT_EQ(samples(*sampler.call).size(), 2u);  // both items have left the queue
  first.stream->on_end(unavailable("the connection broke before the answer came"));
  Insert second = session_stream();
  second.stream->on_message(
      numbered_request(1, {item(1, 8), item(2, 8), item(3, 8)}, {chunk(8, 1)}));
  EXPECT_EQ(runs(*second.call), (Runs{{1, 3}}));
  EXPECT_EQ(size(), 1);
  // Another session has separate numbers.
  Insert other = session_stream('b');
  other.stream->on_message(numbered_request(1, {item(4, 7)}, {chunk(7, 1)}));
  EXPECT_EQ(size(), 2);
}

TEST_F(ReverbStreams, WaitingItemsAreWithdrawnAndInsertedInOrderWhenResent) {
  open_queue(2);
  Insert first = session_stream();
  first.stream->on_message(
      numbered_request(1, {item(1, 7), item(2, 7), item(3, 7), item(4, 7)}, {chunk(7, 1)}));
  EXPECT_EQ(runs(*first.call), (Runs{{1, 2}}));
  EXPECT_EQ(blocked().inserts.waiting, 2);
  first.stream->on_end(unavailable("gone"));
  EXPECT_EQ(blocked().inserts.waiting, 0);
  Insert second = session_stream();
  second.stream->on_message(
      numbered_request(2, {item(2, 7), item(3, 7), item(4, 7)}, {chunk(7, 1)}, 2));
  EXPECT_EQ(runs(*second.call), (Runs{{2, 1}}));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(4));
  EXPECT_EQ(samples(*sampler.call),
            (std::vector<std::pair<ItemKey, int>>{{1, 1}, {2, 1}, {3, 1}, {4, 1}}));
  EXPECT_EQ(runs(*second.call), (Runs{{3, 1}, {4, 1}}));
}

TEST_F(ReverbStreams, AStreamThatTakesOverWaitsForTheEndOfItsPredecessor) {
  open_queue(1);
  Insert first = session_stream();
  first.stream->on_message(numbered_request(1, {item(1, 7), item(2, 7)}, {chunk(7, 1)}));
  // The server has not yet noticed that the client lost the first connection.
  Insert second = session_stream();
  EXPECT_TRUE(second.call->is_paused());
  expect_refused(first.call->finished().value(), StatusCode::kUnavailable, {"took over"});
  first.stream->on_message(numbered_request(3, {item(3, 7)}, {chunk(7, 1)}));  // comes too late
  EXPECT_EQ(blocked().inserts.waiting, 1);
  first.stream->on_end(unavailable("took over"));
  EXPECT_FALSE(second.call->is_paused());
  EXPECT_EQ(blocked().inserts.waiting, 0);
  second.stream->on_message(numbered_request(2, {item(2, 7)}, {chunk(7, 1)}));
  EXPECT_EQ(blocked().inserts.waiting, 1);
}

// Two threads read two connections of one writer: the headers of the broken connection may be read
// after those of the connection that replaced it.
TEST_F(ReverbStreams, AnOldStreamThatArrivesAfterTheNewOneInsertsNothing) {
  open_queue(5);
  Insert second = session_stream('a', "2");
  second.stream->on_message(numbered_request(1, {item(1, 7)}, {chunk(7, 1)}));
  second.stream->on_message(numbered_request(2, {item(2, 7)}, {chunk(7, 1)}, /*settled_below=*/2));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(2));
  EXPECT_EQ(size(), 0);
  Insert first = session_stream('a', "1");
  expect_refused(first.call->finished().value(), StatusCode::kUnavailable, {"newer stream"});
  first.stream->on_message(numbered_request(1, {item(1, 7)}, {chunk(7, 1)}));
  first.stream->on_end(unavailable("the connection broke"));
  EXPECT_EQ(size(), 0) << "1 was in, and taken";
  EXPECT_FALSE(second.call->finished().has_value());
  second.stream->on_message(numbered_request(3, {item(3, 7)}, {chunk(7, 1)}, 3));
  EXPECT_EQ(size(), 1);
  // The same for a writer that does not send the ordinals of its streams.
  Insert untold = session_stream();
  second.stream->on_end(unavailable("another took over"));
  untold.stream->on_message(numbered_request(1, {item(1, 7), item(2, 7)}, {chunk(7, 1)}));
  EXPECT_EQ(runs(*untold.call), (Runs{{1, 2}}));
  EXPECT_EQ(size(), 1);
}

TEST_F(ReverbStreams, ItemsOfASessionAfterARefusedOneAreNotInserted) {
  open_queue(1);
  Insert writer = session_stream();
  writer.stream->on_message(
      numbered_request(1, {item(1, 7), item(2, 7), item(3, 99), item(4, 7)}, {chunk(7, 1)}));
  expect_refused(writer.call->finished().value(), StatusCode::kInternal, {"99"});
  EXPECT_EQ(runs(*writer.call), (Runs{{1, 1}}));
  writer.stream->on_end({});  // the call ends after its status was sent
  EXPECT_EQ(blocked().inserts.waiting, 0) << "the writer was told that 2 is lost";
}

TEST_F(ReverbStreams, AMessageBehindARefusedOneIsNotRead) {
  open_fifo();
  Insert writer = session_stream();
  writer.call->end_late();
  writer.stream->on_message(
      numbered_request(1, {item(1, 7, 1, "none"), item(2, 7)}, {chunk(7, 1)}));
  writer.stream->on_message(numbered_request(3, {item(3, 8)}, {chunk(8, 1)}));
  expect_refused(writer.call->finished().value(), StatusCode::kNotFound, {"none"});
  EXPECT_EQ(size(), 0) << "item 3 would come before item 2, which is sent again";
}

TEST_F(ReverbStreams, ASessionNeedsAValidNameAndNumberedItems) {
  open_fifo();
  Insert writer = session_stream();
  writer.stream->on_message(numbered_request(0, {item(1, 7)}, {chunk(7, 1)}));
  expect_refused(writer.call->finished().value(), StatusCode::kInvalidArgument, {"first_number"});
  EXPECT_EQ(size(), 0);
  Insert misnamed = session_stream('G');
  EXPECT_TRUE(misnamed.call->is_paused());
  expect_refused(misnamed.call->finished().value(), StatusCode::kInvalidArgument, {"GGGG", "32"});
  for (const std::string ordinal : {"0", "-1", "2x", "99999999999999999999"}) {
    Insert misnumbered = session_stream('a', ordinal);
    expect_refused(misnumbered.call->finished().value(), StatusCode::kInvalidArgument, {ordinal});
  }
}

TEST_F(ReverbStreams, ASmallChunkDoesNotHoldItsMessage) {
  open_fifo();
  Insert writer = insert_stream();
  std::vector<std::string> chunks;
  for (ChunkKey key = 1; key <= 20; ++key) chunks.push_back(chunk(key, 1));
  Ref<GrpcMessage> message = insert_request(chunks, {item(1, 7)}, {});
  writer.stream->on_message(message);
  EXPECT_EQ(message->ref_count(), 1u);
  Ref<GrpcMessage> alone = insert_request({chunk(30, 1)}, {item(2, 30)}, {});
  writer.stream->on_message(alone);
  EXPECT_EQ(alone->ref_count(), 1u) << "no chunk may stay in the memory of short messages";
}

TEST_F(ReverbStreams, SamplesHoldTheSentDataAndRequestsAreServedInOrder) {
  open({table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1)),
        table_options("u", "Lifo", "Fifo", 100, RateLimiter::min_size(1))});
  Insert writer = insert_stream();
  const std::string sent = chunk(7, 1, 3);
  writer.stream->on_message(insert_request({sent}, {item(1, 7, 2), item(5, 7, 3, "u")}, {}));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(2));
  const std::vector<std::string> written = sampler.call->take_written();
  ASSERT_EQ(written.size(), 1u);
  const auto entries = wire::read_sample_response(wire::bytes_of(written[0])).value();
  ASSERT_EQ(entries.size(), 2u);
  for (std::size_t i = 0; i < 2; ++i) {
    const wire::WireSampleInfo& info = entries[i].info.value();
    EXPECT_EQ(info.item.key, 1u);
    EXPECT_EQ(info.item.table, "t");
    EXPECT_EQ(info.item.priority, 1.5);
    EXPECT_EQ(info.item.times_sampled, static_cast<std::int32_t>(i + 1));
    EXPECT_EQ(info.item.slices, (std::vector<wire::Slice>{{7, 0, 2, 0}}));
    EXPECT_GT(info.item.inserted_at_ns, std::int64_t{1} << 60) << "the calendar's time";
    EXPECT_EQ(info.probability, 1.0);
    EXPECT_EQ(info.table_size, 1);
    ASSERT_EQ(entries[i].chunks.size(), 1u);
    EXPECT_EQ(wire::text_of(entries[i].chunks[0]), sent) << "byte for byte";
    EXPECT_TRUE(entries[i].end_of_sequence);
  }
  EXPECT_FALSE(sampler.call->is_paused());
  sampler.stream->on_message(sample_request(1, -1, "u"));
  EXPECT_EQ(samples(*sampler.call), (std::vector<std::pair<ItemKey, int>>{{5, 1}}));
  sampler.stream->on_half_close();
  EXPECT_TRUE(sampler.call->finished().value().ok());
}

TEST_F(ReverbStreams, SamplerErrorsAreReportedInReverbsWords) {
  open_fifo();
  const auto expect_end = [&](const Ref<GrpcMessage>& message, StatusCode code,
                              const std::string& text) {
    Sample sampler = sample_stream();
    sampler.stream->on_message(message);
    ASSERT_TRUE(sampler.call->finished().has_value());
    EXPECT_EQ(sampler.call->finished()->code(), code);
    EXPECT_EQ(sampler.call->finished()->message(), text);
  };
  expect_end(sample_request(0), StatusCode::kInvalidArgument, "`num_samples` must be > 0 (got0).");
  expect_end(sample_request(1, -1, "none"), StatusCode::kNotFound,
             "Priority table none was not found");
}

// Such are the newest items of a replay buffer.
TEST_F(ReverbStreams, AnItemOverRowsThatAreNotPublishedEndsItsStreamOnly) {
  open_fifo();
  const Ref<Chunk> chunk =
      Chunk::open(testing::float_schema(), {77, 3, 0}, 10, 0, Allocator::heap()).value();
  chunk->publish(3);
  Item made = testing::item_over(*chunk, 1, 1.0, 1, 3);
  ASSERT_TRUE(insert_and_wait(*service_, {"t", {&made, 1}, TimePoint::max()}).status.ok());
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(1));
  ASSERT_TRUE(sampler.call->finished().has_value());
  EXPECT_EQ(sampler.call->finished()->code(), StatusCode::kFailedPrecondition);
  chunk->publish(4);
  Sample later = sample_stream();
  later.stream->on_message(sample_request(1));
  EXPECT_EQ(samples(*later.call), (std::vector<std::pair<ItemKey, int>>{{1, 1}}));
}

TEST_F(ReverbStreams, SamplesComeBeforeTheTimeoutThatEndsTheStream) {
  open_queue(5);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7), item(2, 7)}, {7}));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(3, 100));
  EXPECT_EQ(samples(*sampler.call).size(), 2u);
  EXPECT_FALSE(sampler.call->finished().has_value());
  clock_.advance(std::chrono::milliseconds(101));
  // Another thread runs the timer, at a time of its own.
  ASSERT_TRUE(test::eventually([&] { return sampler.call->finished().has_value(); }));
  EXPECT_EQ(sampler.call->finished()->code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(sampler.call->finished()->message(),
            "Rate Limiter: Timeout exceeded before the right to insert was acquired.");
}

TEST_F(ReverbStreams, ASamplerThatDisconnectsWhileItWaitsTakesNothing) {
  open_queue(5);
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(3));
  EXPECT_EQ(blocked().samples.waiting, 1);
  sampler.stream->on_end(cancelled("gone"));
  EXPECT_EQ(blocked().samples.waiting, 0);
  Insert writer = insert_stream();
  writer.stream->on_message(insert_request({chunk(7, 1)}, {item(1, 7)}, {}));
  EXPECT_EQ(size(), 1);
}

TEST_F(ReverbStreams, ASamplerThatDoesNotReadPausesItsOwnDraws) {
  open_queue(300);
  Insert writer = insert_stream();
  std::vector<wire::WireItem> items;
  for (ItemKey key = 1; key <= 300; ++key) items.push_back(item(key, 7));
  writer.stream->on_message(insert_request({chunk(7, 1)}, items, {}));
  Sample sampler = sample_stream();
  sampler.call->set_room(false);
  sampler.stream->on_message(sample_request(300));
  EXPECT_EQ(size(), 300) << "nothing is drawn without room";
  sampler.call->set_room(true);
  sampler.stream->on_room();
  EXPECT_EQ(samples(*sampler.call).size(), 300u);
  EXPECT_EQ(store_->samples.load(), 300u);
}

TEST_F(ReverbStreams, SamplesDrawnForADisconnectedClientAreCounted) {
  open_queue(300);
  Insert writer = insert_stream();
  std::vector<wire::WireItem> items;
  for (ItemKey key = 1; key <= 300; ++key) items.push_back(item(key, 7));
  writer.stream->on_message(insert_request({chunk(7, 1)}, items, {}));
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(1));
  sampler.call->set_room(false);
  sampler.stream->on_message(sample_request(299));
  sampler.stream->on_end(cancelled("gone"));
  EXPECT_EQ(
      store_->samples.load() + store_->unsent_samples.load() + static_cast<std::uint64_t>(size()),
      300u);
}

TEST_F(ReverbStreams, SamplesDrawnForADisconnectedClientAreUndoneIfEnabled) {
  for (const bool undoes : {false, true}) {
    open_queue(10);
    store_->tables["t"].undoes_unsent = undoes;
    Sample gone = sample_stream();
    gone.stream->on_message(sample_request(5));  // waits for the first item
    gone.call->set_room(false);
    Insert writer = insert_stream();
    std::vector<wire::WireItem> items;
    for (ItemKey key = 1; key <= 5; ++key) items.push_back(item(key, 7));
    writer.stream->on_message(insert_request({chunk(7, 1)}, items, {}));
    const auto drawn = 5 - size();
    ASSERT_GT(drawn, 0) << "drawn, and not written for want of room";
    gone.stream->on_end(cancelled("gone"));
    EXPECT_EQ(size(), undoes ? 5 : 5 - drawn);
    EXPECT_EQ(store_->undone_samples.load(), undoes ? static_cast<std::uint64_t>(drawn) : 0u);
    EXPECT_EQ(store_->unsent_samples.load(), undoes ? 0u : static_cast<std::uint64_t>(drawn));
    Sample next = sample_stream();
    next.stream->on_message(sample_request(size()));
    std::vector<std::pair<ItemKey, int>> expected;
    for (ItemKey key = undoes ? 1 : 1 + static_cast<ItemKey>(drawn); key <= 5; ++key) {
      expected.emplace_back(key, 1);
    }
    EXPECT_EQ(samples(*next.call), expected) << "in their order";
  }
}

TEST_F(ReverbStreams, ALargeSampleIsSentInPartsOfAboutTwoMebibytes) {
  open_fifo();
  Insert writer = insert_stream();
  // One item of five chunks of noise, 1.5 MB each.
  const auto schema =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"", DType::kUInt8, {1'500'000}}});
  Random random(std::uint64_t{5});
  std::vector<std::string> chunks;
  wire::WireItem large = item(1, 0);
  large.slices.clear();
  std::vector<std::byte> noise(1'500'000);
  for (ChunkKey key = 1; key <= 5; ++key) {
    for (std::byte& b : noise) b = static_cast<std::byte>(random.next());
    const Ref<Chunk> made = Chunk::open(schema, {key}, 1, 0, Allocator::heap()).value();
    made->set_row(0, 0, noise);
    made->publish(1);
    chunks.push_back(wire::write_chunk(*made, 0, 1, key).value());
    large.slices.push_back({key, 0, 1, 0});
  }
  large.columns = {{0, 5, false}};
  store_->kept_bytes_max = std::size_t{1} << 30;
  writer.stream->on_message(insert_request(chunks, {large}));
  EXPECT_EQ(confirmed(*writer.call).size(), 1u);
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(1));
  std::vector<std::size_t> chunks_of_part;
  for (const std::string& message : sampler.call->take_written()) {
    const auto entries = wire::read_sample_response(wire::bytes_of(message)).value();
    for (const auto& entry : entries) chunks_of_part.push_back(entry.chunks.size());
  }
  EXPECT_EQ(chunks_of_part, (std::vector<std::size_t>{2, 2, 1}));
}

TEST_F(ReverbStreams, AnEmbeddedWritersRowsAreEncodedForReverbsClients) {
  open_fifo();
  const Ref<Chunk> chunk = testing::float_chunk(10, 8, {77, 3, 0});
  Item made = testing::item_over(*chunk, 1, 1.0, 5, 2);
  ASSERT_TRUE(insert_and_wait(*service_, {"t", {&made, 1}, TimePoint::max()}).status.ok());
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(2));
  const auto written = sampler.call->take_written();
  const auto entries = wire::read_sample_response(wire::bytes_of(written.at(0))).value();
  ASSERT_EQ(entries.size(), 2u);
  const wire::Slice slice = entries[0].info->item.slices.at(0);
  EXPECT_EQ(slice, (wire::Slice{77, 5, 2, 0})) << "a small chunk goes whole";
  const std::string bytes(wire::text_of(entries[0].chunks.at(0)));
  Buffer buffer = Allocator::heap().allocate(bytes.size()).value();
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(buffer.data()));
  wire::SchemaCache schemas;
  const Ref<Chunk> back = wire::read_chunk(std::move(buffer), schemas).value();
  const auto rows = decode_column(back->encoded_column(0).codec, back->schema().column(0),
                                  back->rows(), back->encoded_bytes(0))
                        .value();
  EXPECT_TRUE(std::ranges::equal(rows[5], chunk->row_bytes(0, 5)));
  EXPECT_GT(store_->transcoder.cached_bytes(), 0u);
}

TEST_F(ReverbStreams, OnlyTheRowsOfTheItemAreEncodedFromALargeChunk) {
  open_fifo();
  const Ref<Chunk> chunk = testing::float_chunk(0, 100'000, {77, 3, 0});
  Item made = testing::item_over(*chunk, 1, 1.0, 5000, 20);
  ASSERT_TRUE(insert_and_wait(*service_, {"t", {&made, 1}, TimePoint::max()}).status.ok());
  Sample sampler = sample_stream();
  sampler.stream->on_message(sample_request(1));
  const auto written = sampler.call->take_written();
  EXPECT_LT(written.at(0).size(), 500u);
  const auto entries = wire::read_sample_response(wire::bytes_of(written[0])).value();
  EXPECT_EQ(entries.at(0).info->item.slices.at(0), (wire::Slice{77, 0, 20, 0}));
}

TEST_F(ReverbStreams, TheCacheOfEncodedChunksStaysWithinItsBound) {
  ChunkTranscoder transcoder(20'000);
  for (ChunkKey key = 1; key <= 100; ++key) {
    const Ref<Chunk> chunk = testing::float_chunk(static_cast<float>(key), 500, {key, 1, 0});
    ASSERT_TRUE(transcoder.transcode(*chunk, 0, 500).ok());
    EXPECT_LE(transcoder.cached_bytes(), 20'000u);
  }
  EXPECT_GT(transcoder.cached_bytes(), 10'000u);
}

}  // namespace
}  // namespace reverie
