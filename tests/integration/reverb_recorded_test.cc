// Recorded conversations of dm-reverb 0.14's clients and servers (tests/reverb/record.py): a store
// of ours gets what the client sent, and our client reads what the server answered.
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "reverb.pb.h"
#include "reverie/adapters/reverb/insert_stream.h"
#include "reverie/adapters/reverb/sample_call.h"
#include "reverie/adapters/reverb/sample_stream.h"
#include "reverie/gather/batch.h"
#include "reverie/replay/local_service.h"
#include "reverie/replay/rate_limiter.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/blocking.h"
#include "tests/support/fake_grpc_call.h"
#include "tests/support/items.h"
#include "tests/tests_dir.h"

namespace reverie {
namespace {

struct Said {
  std::string method;
  int call = 0;
  bool by_client = false;
  std::string bytes;
};

std::vector<Said> conversation(const std::string& name) {
  std::ifstream file(std::string(REVERIE_TESTS_DIR) + "/data/reverb/" + name + ".txt");
  EXPECT_TRUE(file.good()) << name;
  std::vector<Said> all;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Said& said = all.emplace_back();
    std::string direction;
    std::string hex;
    words >> said.method >> said.call >> direction >> hex;
    said.by_client = direction == ">";
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
      said.bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
    }
  }
  return all;
}

// Batches of items, column by column.
Batch drawn_by_us(LocalService& service, std::size_t count) {
  SampleRequest request;
  request.table = "t";
  request.count = request.min_count = count;
  return assemble(sample_and_wait(service, std::move(request)).batch, {}).value();
}

Batch read_by_our_client(const std::vector<Said>& all, std::size_t count) {
  SampleCall call(count, std::make_shared<const wire::ColumnNames>(), SampleBatch());
  for (const Said& said : all) {
    if (said.method == "SampleStream" && !said.by_client && !call.is_complete()) {
      const Status status = call.take(grpc_message(said.bytes));
      EXPECT_TRUE(status.ok()) << status.to_string();
    }
  }
  const SampleResult result = call.finish({});
  EXPECT_TRUE(result.status.ok()) << result.status.to_string();
  return assemble(result.batch, {}).value();
}

template <typename T>
std::vector<T> values(const BatchColumn& column) {
  std::vector<T> all(column.bytes.size_bytes() / sizeof(T));
  std::memcpy(all.data(), column.bytes.data(), column.bytes.size_bytes());
  return all;
}

std::vector<std::string> words(const BatchColumn& column) {
  std::vector<std::string> all;
  const auto bytes = column.bytes.bytes();
  for (std::size_t at = 0; at < bytes.size();) {
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data() + at, sizeof(size));
    at += sizeof(size);
    all.emplace_back(reinterpret_cast<const char*>(bytes.data()) + at, size);
    at += size;
  }
  return all;
}

// Checks steps of record.py, which has these columns: {c: i + 2j, f: (i/2, i/2), flag: odd,
// i: (250 + i, -i), s: (ab, i)}; s comes last.
void expect_steps(const Batch& batch, std::size_t item, int first, int count) {
  ASSERT_GE(batch.columns.size(), 5u);
  const auto c = values<float>(batch.columns[0]);
  const auto f = values<float>(batch.columns[1]);
  const auto flag = values<std::uint8_t>(batch.columns[2]);
  const auto i = values<std::int16_t>(batch.columns[3]);
  const auto s = words(batch.columns.back());
  for (int step = 0; step < count; ++step) {
    const auto row = item * static_cast<std::size_t>(count) + static_cast<std::size_t>(step);
    const int n = first + step;
    EXPECT_EQ(c[2 * row], static_cast<float>(n));
    EXPECT_EQ(c[2 * row + 1], 2.0f);
    EXPECT_EQ(f[2 * row + 1], static_cast<float>(n) / 2);
    EXPECT_EQ(flag[row], n % 2);
    EXPECT_EQ(i[2 * row], 250 + n);
    EXPECT_EQ(i[2 * row + 1], -n);
    EXPECT_EQ(s[2 * row], "ab");
    EXPECT_EQ(s[2 * row + 1], std::to_string(n));
  }
}

class ReverbRecorded : public ::testing::Test {
 protected:
  ReverbRecorded() {
    std::vector<TableOptions> tables = {
        testing::table_options("t", "Fifo", "Fifo", 100, RateLimiter::min_size(1))};
    service_ = LocalService::open(tables, {}).value();
    store_ = std::make_shared<ReverbStore>(service_, std::size_t{1} << 20, Clock::system());
    store_->kept_bytes_max = std::size_t{1} << 20;
    store_->tables["t"].pending_max = 10;
  }

  // Sends what the client sent; returns the keys that were confirmed.
  std::vector<ItemKey> insert(const std::vector<Said>& all) {
    const auto call = std::make_shared<FakeServerCall>();
    const auto stream = std::make_shared<InsertStream>(store_, call);
    for (const Said& said : all) {
      if (said.method == "InsertStream" && said.by_client) {
        stream->on_message(grpc_message(said.bytes));
      }
    }
    EXPECT_FALSE(call->finished().has_value()) << call->finished()->to_string();
    return keys_in(call->take_written());
  }
  static std::vector<ItemKey> keys_in(const std::vector<std::string>& messages) {
    std::vector<ItemKey> keys;
    for (const std::string& message : messages) {
      const auto more = wire::read_insert_response(wire::bytes_of(message)).value().keys;
      keys.insert(keys.end(), more.begin(), more.end());
    }
    return keys;
  }
  // The keys that dm-reverb's server confirmed.
  static std::vector<ItemKey> confirmed(const std::vector<Said>& all) {
    std::vector<std::string> messages;
    for (const Said& said : all) {
      if (said.method == "InsertStream" && !said.by_client) messages.push_back(said.bytes);
    }
    return keys_in(messages);
  }

  std::shared_ptr<LocalService> service_;
  std::shared_ptr<ReverbStore> store_;
};

TEST_F(ReverbRecorded, ItemsOfTheOlderWriterAreStoredAndReadAlike) {
  for (const char* name : {"older_writer", "older_writer_delta"}) {
    const std::vector<Said> all = conversation(name);
    const std::vector<ItemKey> keys = insert(all);
    EXPECT_EQ(keys, confirmed(all)) << name;
    expect_steps(drawn_by_us(*service_, 1), 0, 2, 4);
    expect_steps(read_by_our_client(all, 1), 0, 2, 4);
    MutateRequest forget;
    forget.table = "t";
    forget.deletes = keys;
    EXPECT_EQ(mutate_and_wait(*service_, forget).deleted, 1u);
  }
}

TEST_F(ReverbRecorded, ItemsOfTheTrajectoryWriterAreStoredAndReadAlike) {
  const std::vector<Said> all = conversation("trajectory_writer");
  const std::vector<ItemKey> keys = insert(all);
  EXPECT_EQ(keys.size(), 2u);
  const Batch ours = drawn_by_us(*service_, 1);
  expect_steps(ours, 0, 1, 3);
  ASSERT_EQ(ours.columns.size(), 6u);
  EXPECT_EQ(values<std::int16_t>(ours.columns[4]), (std::vector<std::int16_t>{253, -3}));
  EXPECT_EQ(ours.columns[4].spec.shape, (Shape{1, 2})) << "squeezed";
  const Batch theirs = read_by_our_client(all, 1);
  const auto last = values<std::int16_t>(theirs.columns.at(4));
  expect_steps(theirs, 0, last.at(0) - 252, 3);
}

TEST_F(ReverbRecorded, OurServerSendsTheChunksThatTheWriterSent) {
  const std::vector<Said> all = conversation("older_writer_delta");
  insert(all);
  std::map<ChunkKey, std::string> sent;
  for (const Said& said : all) {
    if (said.method != "InsertStream" || !said.by_client) continue;
    const auto request = wire::read_insert_request(wire::bytes_of(said.bytes)).value();
    for (const wire::Bytes chunk : request.chunks) {
      sent[wire::chunk_key_of(chunk).value()] = wire::text_of(chunk);
    }
  }
  const auto call = std::make_shared<FakeServerCall>();
  const auto stream = std::make_shared<SampleStream>(store_, call);
  stream->on_message(grpc_message(wire::write_sample_request({"t", 1, -1})));
  const auto written = call->take_written();
  const auto entries = wire::read_sample_response(wire::bytes_of(written.at(0))).value();
  ASSERT_FALSE(entries.at(0).chunks.empty());
  for (const wire::Bytes chunk : entries[0].chunks) {
    EXPECT_EQ(wire::text_of(chunk), sent.at(wire::chunk_key_of(chunk).value()));
  }
}

TEST_F(ReverbRecorded, TablesOfTheServerAreReadCompletely) {
  for (const Said& said : conversation("other_calls")) {
    if (said.method != "ServerInfo" || said.by_client) continue;
    const auto response = wire::read_info_response(wire::bytes_of(said.bytes)).value();
    ASSERT_EQ(response.tables.size(), 2u);
    const bool t_first = response.tables[0].options.name == "t";
    const TableInfo& t = response.tables[t_first ? 0 : 1];
    const TableInfo& u = response.tables[t_first ? 1 : 0];
    EXPECT_EQ(t.options.sampler.name, "Prioritized");
    EXPECT_EQ(std::get<double>(t.options.sampler.options.at("priority_exponent")), 0.8);
    EXPECT_EQ(t.options.max_times_sampled, 7);
    EXPECT_EQ(t.options.rate_limiter.max_diff, std::numeric_limits<double>::max());
    EXPECT_FALSE(t.options.signature.has_value());
    EXPECT_EQ(u.options.sampler.name, "Lifo");
    ASSERT_TRUE(u.options.signature.has_value());
    const auto& columns = u.options.signature->columns;
    ASSERT_EQ(columns.size(), 3u);
    EXPECT_EQ(columns[0], (TensorSpec{"x", DType::kFloat32, {-1, 3}}));
    EXPECT_EQ(columns[1], (TensorSpec{"y/0", DType::kInt64, {}}));
    EXPECT_EQ(columns[2], (TensorSpec{"y/1/0", DType::kUInt8, {2}}));
    EXPECT_EQ(u.options.signature->structure,
              R"({"dict": [["x", "*"], ["y", {"list": ["*", {"tuple": ["*"]}]}]]})");
  }
}

TEST_F(ReverbRecorded, RequestsOfTheClientsAreWrittenAlike) {
  using google::protobuf::util::MessageDifferencer;
  int requests = 0;
  for (const char* name :
       {"older_writer", "older_writer_delta", "trajectory_writer", "other_calls"}) {
    for (const Said& said : conversation(name)) {
      if (!said.by_client || said.method != "InsertStream") continue;
      ++requests;
      const auto ours = wire::read_insert_request(wire::bytes_of(said.bytes)).value();
      const std::string again =
          wire::write_insert_request(ours.chunks, ours.items, ours.keep_chunk_keys).flat();
      reverb_proto::InsertStreamRequest theirs;
      reverb_proto::InsertStreamRequest back;
      ASSERT_TRUE(theirs.ParseFromString(said.bytes));
      ASSERT_TRUE(back.ParseFromString(again));
      EXPECT_TRUE(MessageDifferencer::Equals(theirs, back));
    }
  }
  EXPECT_GT(requests, 3);
}

}  // namespace
}  // namespace reverie
