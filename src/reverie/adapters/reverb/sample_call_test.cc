#include "reverie/adapters/reverb/sample_call.h"

#include <gtest/gtest.h>

#include "reverie/reverb_wire/chunk_data.h"
#include "tests/support/fake_grpc_call.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

// What the client makes of a server's responses.
class SampleCallTest : public ::testing::Test {
 protected:
  std::unique_ptr<SampleCall> call(std::size_t count) {
    taken_ = {};
    return std::make_unique<SampleCall>(count, std::make_shared<const wire::ColumnNames>(),
                                        SampleBatch());
  }
  // Ignores responses after the first error.
  void take(SampleCall& call, const wire::PiecedMessage& response) {
    if (taken_.ok()) taken_ = call.take(grpc_message(response.flat()));
  }
  void end(SampleCall& call, const Status& status) {
    result_ = call.finish(taken_.ok() ? status : taken_);
  }
  static std::string chunk(ChunkKey key, float value) {
    return wire::write_chunk(*testing::float_chunk(value, 2, {key}), 0, 2, key).value();
  }
  static std::string info(ItemKey key, std::vector<wire::Slice> slices) {
    wire::WireSampleInfo made;
    made.item.key = key;
    made.item.table = "t";
    made.item.priority = 2.5;
    made.item.times_sampled = 3;
    const auto end = static_cast<std::uint32_t>(slices.size());
    made.item.slices = std::move(slices);
    made.item.columns = {{0, end, false}};
    made.probability = 0.25;
    made.table_size = 4;
    return wire::write_sample_info(made);
  }
  Status taken_;
  SampleResult result_;
};

TEST_F(SampleCallTest, PartsAreCollectedUntilTheLast) {
  const auto reader = call(2);
  const std::string a = chunk(1, 10);
  const std::string b = chunk(2, 20);
  const std::vector<wire::Bytes> first = {wire::bytes_of(a)};
  const std::vector<wire::Bytes> second = {wire::bytes_of(b)};
  wire::PiecedMessage one;
  wire::put_sample_entry(one, info(7, {{2, 1, 1, 0}, {1, 0, 2, 0}}), {}, false);
  wire::put_sample_entry(one, "", first, false);
  take(*reader, one);
  wire::PiecedMessage two;
  wire::put_sample_entry(two, "", second, false);
  wire::put_sample_entry(two, "", {}, true);
  wire::put_sample_entry(two, info(8, {{1, 1, 1, 0}}), first, true);
  take(*reader, two);
  end(*reader, {});
  ASSERT_TRUE(result_.status.ok()) << result_.status.to_string();
  ASSERT_EQ(result_.batch.size(), 2u);
  EXPECT_EQ(result_.batch.keys()[0], 7u);
  EXPECT_EQ(result_.batch.tickets()[1], 8u) << "a ticket is a key";
  EXPECT_EQ(result_.batch.probabilities()[0], 0.25);
  EXPECT_EQ(result_.batch.table_sizes()[0], 4);
  EXPECT_EQ(result_.batch.times_sampled()[0], 3);
  EXPECT_EQ(result_.batch.trajectories()[0].pieces().size(), 2u);
  EXPECT_TRUE(result_.batch.has_pin());
  result_.batch.retain();
  EXPECT_EQ(result_.batch.trajectories()[1].pieces()[0].offset, 1u);
}

TEST_F(SampleCallTest, SamplesReceivedBeforeAnErrorAreDelivered) {
  const auto reader = call(3);
  const std::string a = chunk(1, 10);
  const std::vector<wire::Bytes> chunks = {wire::bytes_of(a)};
  wire::PiecedMessage one;
  wire::put_sample_entry(one, info(7, {{1, 0, 1, 0}}), chunks, true);
  take(*reader, one);
  end(*reader, deadline_exceeded("Rate Limiter: ..."));
  EXPECT_EQ(result_.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(result_.batch.size(), 1u);
}

TEST_F(SampleCallTest, InvalidSamplesAreErrors) {
  const std::string a = chunk(1, 10);
  const std::vector<wire::Bytes> chunks = {wire::bytes_of(a)};
  const auto expect_end = [&](const wire::PiecedMessage& response, StatusCode code,
                              const std::string& words) {
    const auto reader = call(1);
    take(*reader, response);
    end(*reader, {});
    expect_refused(result_.status, code, {words});
  };
  wire::PiecedMessage missing;
  wire::put_sample_entry(missing, info(7, {{9, 0, 1, 0}}), chunks, true);
  expect_end(missing, StatusCode::kDataLoss, "chunk 9");
  wire::PiecedMessage outside;
  wire::put_sample_entry(outside, info(7, {{1, 1, 2, 0}}), chunks, true);
  expect_end(outside, StatusCode::kDataLoss, "2 rows from 1");
  wire::PiecedMessage nameless;
  wire::put_sample_entry(nameless, "", chunks, true);
  expect_end(nameless, StatusCode::kInternal, "without its info");
  wire::PiecedMessage few;
  expect_end(few, StatusCode::kInternal, "0 of 1 samples");
  wire::PiecedMessage broken;
  broken.own = "\x0a\x7f";
  expect_end(broken, StatusCode::kInternal, "SampleStreamResponse");
  wire::PiecedMessage many;
  wire::put_sample_entry(many, info(7, {{1, 0, 1, 0}}), chunks, true);
  wire::put_sample_entry(many, info(8, {{1, 0, 1, 0}}), chunks, true);
  const auto reader = call(1);
  take(*reader, many);
  end(*reader, {});
  EXPECT_EQ(result_.batch.size(), 1u) << "what was asked for is handed out";
}

}  // namespace
}  // namespace reverie
