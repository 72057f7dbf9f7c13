#include "reverie/store_messages/store_wire.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/tensor/value_writer.h"

namespace reverie::store_wire {
namespace {

TEST(StoreWire, ASampleRequestSurvivesARoundTrip) {
  SampleMessage ask;
  ask.table = "replay";
  ask.count = 256;
  ask.min_count = 3;
  ask.is_distinct = true;
  ask.wants_names = true;
  ask.timeout = std::chrono::milliseconds(7);
  ask.received = {41, 38};
  ask.returned = {39, 40};
  const Payload payload = write_sample(ask);
  const SampleMessage read = read_sample(payload).value();
  EXPECT_EQ(read.table, "replay");
  EXPECT_EQ(read.count, 256u);
  EXPECT_EQ(read.min_count, 3u);
  EXPECT_TRUE(read.is_distinct);
  EXPECT_FALSE(read.wants_least);
  EXPECT_TRUE(read.wants_names);
  EXPECT_EQ(read.timeout, Duration(std::chrono::milliseconds(7)));
  EXPECT_EQ(read.received, ask.received);
  EXPECT_EQ(read.returned, ask.returned);
}

TEST(StoreWire, AnErrorKeepsItsCodeAndText) {
  const Status error = failed_precondition("max_size is 0; give it at least 1");
  EXPECT_EQ(read_status(write_status(error)), error);
  EXPECT_TRUE(read_status(write_status({})).ok());
  EXPECT_EQ(read_number(write_number(error)).status(), error);
  EXPECT_EQ(read_mutated(write_mutated({.status = error})).status, error);
}

TEST(StoreWire, AnUpdateSurvivesARoundTrip) {
  const std::vector<std::uint64_t> tickets = {1, 1ull << 40};
  const std::vector<double> priorities = {0.5, 2};
  const std::vector<ItemKey> deletes = {9};
  const std::vector<CorruptItem> corrupt = {{7, 8, "a column is damaged"}};
  MutateRequest request;
  request.table = "t";
  request.tickets = tickets;
  request.ticket_priorities = priorities;
  request.deletes = deletes;
  request.corrupt = corrupt;
  const Payload payload = write_mutate(request);
  const MutateMessage ask = read_mutate(payload).value();
  EXPECT_EQ(ask.table, "t");
  EXPECT_EQ(ask.tickets, tickets);
  EXPECT_EQ(ask.ticket_priorities, priorities);
  EXPECT_EQ(ask.deletes, deletes);
  ASSERT_EQ(ask.corrupt.size(), 1u);
  EXPECT_EQ(ask.corrupt[0].key, 7u);
  EXPECT_EQ(ask.corrupt[0].why, "a column is damaged");
}

TEST(StoreWire, TablesAreDescribedWithTheirWaitingRequests) {
  TableInfo info;
  info.options.name = "t";
  info.options.sampler.name = "Fifo";
  info.options.remover.name = "Fifo";
  info.options.max_size = 10;
  info.options.max_bytes = 1000;
  info.options.undoes_unsent = true;
  info.pending_inserts = 3;
  info.missing_updates = 4;
  info.max_priority = 2.5;
  const auto read = read_infos(write_infos(std::vector<TableInfo>{info})).value();
  ASSERT_EQ(read.size(), 1u);
  EXPECT_EQ(read[0].options.name, "t");
  EXPECT_EQ(read[0].options.max_bytes, 1000);
  EXPECT_TRUE(read[0].options.undoes_unsent);
  EXPECT_EQ(read[0].pending_inserts, 3);
  EXPECT_EQ(read[0].missing_updates, 4);
  EXPECT_EQ(read[0].max_priority, 2.5);
}

TEST(StoreWire, ColumnNamesAreSentWithAPartOfASample) {
  SamplePart part;
  part.tickets = {1, 2, 3};
  part.table_size = 12;
  part.names = wire::ColumnNames{{"obs", "action"}, "s"};
  const SamplePart read = read_part(write_part(part)).value();
  EXPECT_EQ(read.tickets, part.tickets);
  EXPECT_EQ(read.table_size, 12);
  ASSERT_TRUE(read.names);
  EXPECT_EQ(read.names->names, part.names->names);
  EXPECT_EQ(read.names->structure, "s");
}

// A message that is cut at any byte, or has a byte too many, is refused.
template <typename Read>
void expect_refused_in_part(const Payload& whole, Read read) {
  for (std::size_t size = 0; size < whole.head.size(); ++size) {
    Payload part;
    part.head.assign(whole.head.begin(), whole.head.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(read(part)) << size << " of " << whole.head.size() << " bytes";
  }
  Payload longer;
  longer.head = whole.head;
  longer.head.push_back(std::byte{0});
  EXPECT_FALSE(read(longer));
}

TEST(StoreWire, TheOriginOfAStoreSurvivesARoundTrip) {
  const StoreOrigin origin{"/kept/checkpoint-0000000001", std::string("a\0b", 3)};
  EXPECT_EQ(read_origin(write_origin(origin)).value(), origin);
  EXPECT_EQ(read_origin(write_origin(StoreOrigin())).value(), StoreOrigin());
}

TEST(StoreWire, TruncatedMessagesAreRefused) {
  const std::vector<ItemKey> keys = {1, 2, 3};
  const std::vector<double> priorities = {1, 2, 3};
  const std::vector<CorruptItem> corrupt = {{7, 8, "why"}};
  MutateRequest mutation;
  mutation.table = "table";
  mutation.keys = keys;
  mutation.key_priorities = priorities;
  mutation.corrupt = corrupt;
  expect_refused_in_part(write_mutate(mutation),
                         [](const Payload& p) { return read_mutate(p).ok(); });
  expect_refused_in_part(write_sample({.table = "table"}),
                         [](const Payload& p) { return read_sample(p).ok(); });
  expect_refused_in_part(write_lookup({"table", keys}),
                         [](const Payload& p) { return read_lookup(p).ok(); });
  SamplePart part;
  part.tickets = keys;
  part.names = wire::ColumnNames{{"obs", "action"}, "s"};
  expect_refused_in_part(write_part(part), [](const Payload& p) { return read_part(p).ok(); });
  Inserted inserted;
  inserted.in = {{1, 2}};
  inserted.failed = {{5, 1, not_found("table 'x' does not exist")}};
  expect_refused_in_part(write_inserted(inserted),
                         [](const Payload& p) { return read_inserted(p).ok(); });
  expect_refused_in_part(write_origin(StoreOrigin{"/kept/checkpoint-0000000001", "step 7"}),
                         [](const Payload& p) { return read_origin(p).ok(); });
  expect_refused_in_part(write_note({1, 2, "session"}),
                         [](const Payload& p) { return read_note(p).ok(); });
}

// The field is at the end, so that a message without it is that of earlier versions.
TEST(StoreWire, TheEndOfAWriterIsOnlyInItsLastAnswer) {
  Inserted inserted;
  inserted.writer = 3;
  inserted.in = {{1, 2}};
  inserted.failed = {{5, 1, not_found("table 'x' does not exist")}};
  EXPECT_TRUE(read_inserted(write_inserted(inserted))->ended.ok());
  inserted.ended = resource_exhausted("a bound");
  const Payload payload = write_inserted(inserted);
  const Result<Inserted> read = read_inserted(payload);
  ASSERT_TRUE(read.ok()) << read.status().message();
  EXPECT_EQ(read->ended.code(), StatusCode::kResourceExhausted);
  EXPECT_EQ(read->ended.message(), "a bound");
  EXPECT_EQ(read->failed.size(), 1u);
  expect_refused_in_part(payload, [](const Payload& p) { return read_inserted(p).ok(); });
}

TEST(StoreWire, ALengthBeyondTheMessageIsRefused) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 7);
  writer.text("t");
  payload.head.push_back(static_cast<std::byte>(ValueKind::kBytes));  // a huge number of deletes
  for (int i = 0; i < 9; ++i) payload.head.push_back(std::byte{0xff});
  payload.head.push_back(std::byte{1});
  EXPECT_EQ(read_mutate(payload).status().code(), StatusCode::kDataLoss);
}

}  // namespace
}  // namespace reverie::store_wire
