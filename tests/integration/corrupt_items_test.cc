// Items whose chunks cannot be decoded, which is only noticed when they are drawn. Only these items
// are lost, in embedded and served stores, for every kind of reader.
#include "reverie/gather/corrupt_items.h"

#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/adapters/reverb/reverb_service.h"
#include "reverie/base/log.h"
#include "reverie/client/sample_feed.h"
#include "reverie/codec/column_codec.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/service/blocking.h"
#include "tests/support/items.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

using testing::float_layout;
using testing::float_schema;

constexpr std::uint32_t kRows = 64;
constexpr int kBad = 5;  // damaged items, of kItems
constexpr int kItems = 40;
constexpr int kBadEvery = kItems / kBad;

// A way to damage a chunk.
struct Damaged {
  const char* name;
  CodecId codec;
  std::vector<std::byte> (*bytes)(std::vector<std::byte> good);
};

std::vector<std::byte> rubbish(std::vector<std::byte> good) {
  for (std::size_t i = 0; i < good.size(); ++i) good[i] = static_cast<std::byte>(i * 151 + 77);
  return good;
}
std::vector<std::byte> cut_short(std::vector<std::byte> good) {
  good.resize(good.size() / 2);
  return good;
}
std::vector<std::byte> changed_inside(std::vector<std::byte> good) {
  for (std::size_t i = good.size() / 2; i < good.size(); ++i)
    good[i] = static_cast<std::byte>(0xff);
  return good;
}

const Damaged kDamages[] = {
    {"RawOfAnotherLength", CodecId::kRaw, cut_short},
    {"Lz4Rubbish", CodecId::kLz4, rubbish},
    {"ZstdRubbish", CodecId::kZstd, rubbish},
    {"ZstdThatLies", CodecId::kZstd, changed_inside},
    {"SnappyRubbish", CodecId::kReverb, rubbish},
    {"SnappyCutShort", CodecId::kReverb, cut_short},
    {"DeltasRubbish", CodecId::kReverbDelta, rubbish},
};

class CorruptItems : public ::testing::TestWithParam<Damaged> {
 protected:
  void SetUp() override {
    set_log_sink([this](LogLevel, std::string_view line) {
      const std::lock_guard lock(log_mutex_);
      log_.emplace_back(line);
    });
  }
  void TearDown() override {
    client_.reset();
    if (server_) {
      door_->close();
      server_->stop(seconds(20));
    }
    set_log_sink(nullptr);
  }
  // Item i holds the values from i * kRows on; every kBadEvery-th item has a damaged chunk.
  void open(TableOptions table) {
    store_ = LocalService::open({std::move(table)}, {}).value();
    for (int i = 0; i < kItems; ++i) {
      Item item = is_bad(i)
                      ? bad_item(i)
                      : testing::make_item(key_of(i), 1.0, first_of(i), kRows, {key_of(i), 1, 0});
      ASSERT_TRUE(insert_and_wait(*store_, {"t", {&item, 1}, TimePoint::max()}).status.ok());
    }
  }
  void serve(bool reads_packed) {
    door_ = ReverbService::make(store_).value();
    server_ = std::make_unique<GrpcServer>(threads_, GrpcServerOptions{});
    door_->add_to(*server_);
    ReverbClientOptions options;
    options.reads_packed = reads_packed;
    client_ =
        ReverbClient::open(threads_, server_->listen({"127.0.0.1:0"}).value().front(), options)
            .value();
  }
  static TableOptions fifo_sampled(std::int64_t times) {
    TableOptions table =
        testing::table_options("t", "Fifo", "Fifo", 1000, RateLimiter::min_size(1));
    table.max_times_sampled = times;
    return table;
  }
  static TableOptions uniform() {
    return testing::table_options("t", "Uniform", "Fifo", 1000, RateLimiter::min_size(1));
  }
  static bool is_bad(int i) { return i % kBadEvery == 3; }
  static ItemKey key_of(int i) { return 100 + static_cast<ItemKey>(i); }
  static float first_of(int i) { return static_cast<float>(i * static_cast<int>(kRows)); }
  static Item bad_item(int i) {
    std::vector<float> values(kRows);
    for (std::size_t r = 0; r < kRows; ++r) values[r] = first_of(i) + static_cast<float>(r);
    std::vector<RowSpan> rows;
    for (const float& value : values) rows.push_back(std::as_bytes(std::span(&value, 1)));
    std::vector<std::byte> encoded;
    const CodecId codec = GetParam().codec;
    if (codec == CodecId::kRaw) {
      for (const RowSpan row : rows) encoded.insert(encoded.end(), row.begin(), row.end());
    } else {
      REVERIE_CHECK(encode_column(codec, float_schema()->column(0), rows, encoded).ok());
    }
    encoded = GetParam().bytes(std::move(encoded));
    Buffer storage = Allocator::heap().allocate(encoded.size()).value();
    std::memcpy(storage.data(), encoded.data(), encoded.size());
    const Ref<Chunk> chunk =
        Chunk::encoded(float_schema(), {7000 + static_cast<ChunkKey>(i), 1, 0}, kRows,
                       std::move(storage), {{codec, 0, encoded.size()}});
    return testing::item_over(*chunk, key_of(i), 1.0, 0, kRows);
  }

  static SampleRequest asking(std::size_t count, bool distinct = false) {
    SampleRequest request;
    request.table = "t";
    request.count = request.min_count = count;
    request.distinct = distinct;
    request.deadline = Clock::system().now() + seconds(10.0);
    return request;
  }
  struct Drawn {
    Status status;
    SampleBatch samples;
    Batch batch;
  };
  static Drawn draw(ReplayService& service, std::size_t count, OnCorrupt on_corrupt,
                    bool distinct = false) {
    Drawn drawn;
    SampleResult result = sample_and_wait(service, asking(count, distinct));
    drawn.status = assemble_decodable(service, asking(count, distinct), on_corrupt, {}, {}, result,
                                      drawn.batch);
    if (drawn.status.ok()) drawn.status = result.status;
    drawn.samples = std::move(result.batch);
    return drawn;
  }
  // Each row of the batch belongs to the item whose key is beside it, and no item is damaged.
  static void expect_right(const Drawn& drawn, std::size_t count) {
    ASSERT_TRUE(drawn.status.ok()) << drawn.status.to_string();
    ASSERT_EQ(drawn.samples.size(), count);
    ASSERT_EQ(drawn.batch.columns[0].bytes.size_bytes(), count * kRows * sizeof(float));
    for (std::size_t i = 0; i < count; ++i) {
      const int item = static_cast<int>(drawn.samples.keys()[i] - key_of(0));
      EXPECT_FALSE(is_bad(item));
      float first = 0;
      std::memcpy(&first, drawn.batch.columns[0].bytes.data() + i * kRows * sizeof(float),
                  sizeof(first));
      EXPECT_EQ(first, first_of(item));
    }
  }
  TableInfo info(ReplayService& service) { return info_and_wait(service).value().front(); }
  std::vector<std::string> lines_about(ItemKey key) {
    const std::lock_guard lock(log_mutex_);
    std::vector<std::string> found;
    for (const std::string& line : log_) {
      if (line.find(format("item {} of table 't'", key)) != std::string::npos)
        found.push_back(line);
    }
    return found;
  }

  IoThreads threads_{1};
  std::shared_ptr<LocalService> store_;
  std::unique_ptr<ReverbService> door_;
  std::unique_ptr<GrpcServer> server_;
  std::shared_ptr<ReverbClient> client_;
  std::mutex log_mutex_;
  std::vector<std::string> log_;
};

TEST_P(CorruptItems, AreRemovedAndOthersDrawnInTheirPlace) {
  open(uniform());
  for (int round = 0; round < 40; ++round) {
    expect_right(draw(*store_, 32, OnCorrupt::kRemove), 32);
  }
  EXPECT_EQ(info(*store_).current_size, kItems - kBad);
  EXPECT_EQ(info(*store_).corrupt_items, kBad);
  EXPECT_EQ(info(*store_).samples, 40 * 32) << "their draws did not happen";
}

TEST_P(CorruptItems, AreLoggedOnceWithTableItemAndChunk) {
  open(uniform());
  for (int round = 0; round < 40; ++round) draw(*store_, 32, OnCorrupt::kRemove);
  for (int i = 0; i < kItems; ++i) {
    const std::vector<std::string> lines = lines_about(key_of(i));
    ASSERT_EQ(lines.size(), is_bad(i) ? 1u : 0u);
    if (is_bad(i)) {
      EXPECT_NE(lines[0].find(format("chunk {}:", 7000 + i)), std::string::npos) << lines[0];
    }
  }
}

TEST_P(CorruptItems, LeaveAQueueInOrder) {
  open(fifo_sampled(1));
  const Drawn drawn = draw(*store_, kItems - kBad, OnCorrupt::kRemove);
  expect_right(drawn, kItems - kBad);
  EXPECT_TRUE(std::ranges::is_sorted(drawn.samples.keys()));
  EXPECT_EQ(info(*store_).current_size, 0);
  EXPECT_EQ(info(*store_).corrupt_items, kBad);
}

TEST_P(CorruptItems, DoNotCostDrawsOfItemsThatMayBeSampledTwice) {
  open(fifo_sampled(2));
  for (int batch = 0; batch < 2; ++batch) {
    expect_right(draw(*store_, kItems - kBad, OnCorrupt::kRemove), kItems - kBad);
  }
  EXPECT_EQ(info(*store_).current_size, 0);
  EXPECT_EQ(info(*store_).corrupt_items, kBad);
}

TEST_P(CorruptItems, LeaveADistinctBatchDistinct) {
  open(uniform());
  const Drawn drawn = draw(*store_, kItems - kBad, OnCorrupt::kRemove, /*distinct=*/true);
  expect_right(drawn, kItems - kBad);
  const auto keys = drawn.samples.keys();
  EXPECT_EQ(std::set<ItemKey>(keys.begin(), keys.end()).size(), keys.size());
  // As if the whole batch had been drawn at once from the remaining items.
  const double likely = 1.0 / static_cast<double>(drawn.samples.table_size());
  for (const double p : drawn.samples.probabilities()) EXPECT_NEAR(p, likely, 1e-12);
  EXPECT_EQ(info(*store_).current_size + info(*store_).corrupt_items, kItems);
  EXPECT_EQ(info(*store_).samples, kItems - kBad);
}

TEST_P(CorruptItems, EndAnIncompleteBatchAtItsDeadline) {
  open(fifo_sampled(1));
  SampleRequest request = asking(kItems);
  SampleResult result = sample_and_wait(*store_, std::move(request));
  ASSERT_EQ(result.batch.size(), static_cast<std::size_t>(kItems));
  SampleRequest like = asking(kItems);
  like.deadline = Clock::system().now();
  Batch batch;
  ASSERT_TRUE(assemble_decodable(*store_, like, OnCorrupt::kRemove, {}, {}, result, batch).ok());
  EXPECT_EQ(result.status.code(), StatusCode::kDeadlineExceeded);
  EXPECT_EQ(result.batch.size(), static_cast<std::size_t>(kItems - kBad));
}

TEST_P(CorruptItems, StayInTheTableIfTheCallIsToFail) {
  open(uniform());
  Status status;
  for (int round = 0; round < 40 && status.ok(); ++round) {
    status = draw(*store_, 32, OnCorrupt::kRaise).status;
  }
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(info(*store_).current_size, kItems);
  EXPECT_EQ(info(*store_).corrupt_items, 0);
}

TEST_P(CorruptItems, AreRemovedForAReaderOfSingleItems) {
  open(fifo_sampled(1));
  SampleFeedOptions options;
  options.table = "t";
  options.request_max = 7;
  options.timeout = Duration(0);
  options.is_local = true;
  auto budget = std::make_shared<SampleFeed::Budget>(1000);
  SampleFeed feed(store_, options, budget);
  std::size_t count = 0;
  while (true) {
    const Result<FedSamples> fed = feed({});
    if (!fed.ok()) {
      EXPECT_EQ(fed.status().code(), StatusCode::kDeadlineExceeded);
      break;
    }
    count += fed.value().samples.size();
  }
  EXPECT_EQ(count, static_cast<std::size_t>(kItems - kBad));
  EXPECT_EQ(budget->load(), 1000 - (kItems - kBad))
      << "a corrupt item does not count as one of those asked for";
  EXPECT_EQ(info(*store_).corrupt_items, kBad);
}

TEST_P(CorruptItems, AreRemovedFromAServedTableByItsReader) {
  open(uniform());
  serve(/*reads_packed=*/true);
  for (int round = 0; round < 40; ++round) {
    expect_right(draw(*client_, 32, OnCorrupt::kRemove), 32);
  }
  EXPECT_EQ(info(*client_).current_size, kItems - kBad);
  EXPECT_EQ(info(*client_).corrupt_items, kBad);
  // One line of the client, and one of the server, which knows the chunk.
  EXPECT_EQ(lines_about(key_of(3)).size(), 2u);
}

TEST_P(CorruptItems, AreRemovedFromAServedQueueByItsReader) {
  open(fifo_sampled(1));
  serve(/*reads_packed=*/true);
  const Drawn drawn = draw(*client_, kItems - kBad, OnCorrupt::kRemove);
  expect_right(drawn, kItems - kBad);
  EXPECT_EQ(info(*client_).current_size, 0);
  EXPECT_EQ(info(*client_).corrupt_items, kBad);
}

// With a client that reads as dm-reverb's does, the server has to decode items, and removes them.
TEST_P(CorruptItems, AreRemovedByAServerThatMustDecodeThem) {
  open(fifo_sampled(1));
  serve(/*reads_packed=*/false);
  expect_right(draw(*client_, kItems - kBad, OnCorrupt::kRemove), kItems - kBad);
  EXPECT_EQ(info(*client_).current_size, 0);
  EXPECT_EQ(info(*client_).corrupt_items, kBad);
}

INSTANTIATE_TEST_SUITE_P(Damages, CorruptItems, ::testing::ValuesIn(kDamages),
                         [](const auto& tested) { return tested.param.name; });

}  // namespace
}  // namespace reverie
