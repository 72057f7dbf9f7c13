// reverie/reverb_wire compared with libprotobuf on random messages: each reads what the other
// wrote, and both refuse the same truncated bytes.
#include <memory>
#include <string>
#include <vector>

#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include "reverb.pb.h"
#include "reverie/base/random.h"
#include "reverie/codec/column_codec.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/reverb_wire/signature.h"
#include "reverie/reverb_wire/table_info.h"
#include "tests/scale.h"

namespace reverie {
namespace {

namespace proto = reverie::reverb_proto;
using google::protobuf::util::MessageDifferencer;
using wire::Bytes;

Buffer buffer_of(const std::string& bytes) {
  Buffer buffer = Allocator::heap().allocate(bytes.size()).value();
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(buffer.data()));
  return buffer;
}

template <typename T>
T parsed(const std::string& bytes) {
  T message;
  EXPECT_TRUE(message.ParseFromString(bytes));
  return message;
}

void expect_equal(const google::protobuf::Message& a, const google::protobuf::Message& b) {
  EXPECT_TRUE(MessageDifferencer::Equals(a, b)) << a.DebugString() << "\nis not\n"
                                                << b.DebugString();
}

class ReverbWireOracle : public ::testing::Test {
 protected:
  static constexpr int kRounds = 300;

  std::uint64_t below(std::uint64_t bound) { return random_.below(bound); }
  bool coin() { return below(2) == 0; }
  // A small number, a large one, or one of the largest.
  std::uint64_t number() {
    switch (below(4)) {
      case 0:
        return below(3);
      case 1:
        return below(1000);
      case 2:
        return ~std::uint64_t{0} - below(2);
      default:
        return random_.next();
    }
  }
  std::int32_t number32() { return static_cast<std::int32_t>(number()); }
  std::int64_t number64() { return static_cast<std::int64_t>(number()); }
  double real() { return coin() ? 0.0 : random_.uniform() * 1e6 - 5e5; }
  std::string word() {
    std::string text(below(12), 'a');
    for (char& c : text) c = static_cast<char>('a' + below(26));
    return text;
  }

  void fill(proto::TensorShapeProto& shape, bool is_specification) {
    for (std::uint64_t i = below(4); i > 0; --i) {
      shape.add_dim()->set_size(is_specification && coin() ? -1
                                                           : static_cast<std::int64_t>(below(5)));
    }
  }
  void fill(proto::ChunkData& chunk) {
    static constexpr int kTypes[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14, 17, 18, 19, 22, 23, 24, 25};
    chunk.set_chunk_key(number());
    chunk.mutable_sequence_range()->set_episode_id(number());
    chunk.mutable_sequence_range()->set_start(static_cast<std::int32_t>(below(1000)));
    chunk.mutable_sequence_range()->set_end(static_cast<std::int32_t>(below(1000)));
    chunk.mutable_sequence_range()->set_sparse(coin());
    chunk.set_delta_encoded(coin());
    chunk.set_data_tensors_len(number32());
    chunk.set_data_uncompressed_size(number64());
    const std::uint64_t rows = 1 + below(5);
    for (std::uint64_t i = 1 + below(4); i > 0; --i) {
      proto::TensorProto& tensor = *chunk.mutable_data()->add_tensors();
      tensor.set_dtype(kTypes[below(std::size(kTypes))]);
      tensor.mutable_tensor_shape()->add_dim()->set_size(static_cast<std::int64_t>(rows));
      fill(*tensor.mutable_tensor_shape(), /*is_specification=*/false);
      tensor.set_tensor_content(word());
    }
  }
  void fill(proto::PrioritizedItem& item) {
    item.set_key(number());
    item.set_table(word());
    item.set_priority(real());
    item.set_times_sampled(number32());
    if (coin()) {
      item.mutable_inserted_at()->set_seconds(static_cast<std::int64_t>(below(1ull << 33)));
      item.mutable_inserted_at()->set_nanos(1 + static_cast<std::int32_t>(below(999'999'999)));
    }
    item.mutable_flat_trajectory();
    for (std::uint64_t c = below(4); c > 0; --c) {
      proto::FlatTrajectory::Column& column = *item.mutable_flat_trajectory()->add_columns();
      column.set_squeeze(coin());
      for (std::uint64_t s = below(4); s > 0; --s) {
        proto::FlatTrajectory::ChunkSlice& slice = *column.add_chunk_slices();
        slice.set_chunk_key(number());
        slice.set_offset(number32());
        slice.set_length(number32());
        slice.set_index(number32());
      }
    }
  }
  void fill(proto::InsertStreamRequest& request) {
    for (std::uint64_t i = below(3); i > 0; --i) fill(*request.add_chunks());
    for (std::uint64_t i = below(3); i > 0; --i) fill(*request.add_items());
    for (std::uint64_t i = below(5); i > 0; --i) request.add_keep_chunk_keys(number());
    request.set_first_number(number());
    request.set_settled_below(number());
  }
  void fill(proto::SampleStreamResponse& response) {
    for (std::uint64_t i = below(4); i > 0; --i) {
      proto::SampleStreamResponse::SampleEntry& entry = *response.add_entries();
      if (coin()) {
        fill(*entry.mutable_info()->mutable_item());
        entry.mutable_info()->set_probability(real());
        entry.mutable_info()->set_table_size(number64());
        entry.mutable_info()->set_rate_limited(coin());
      }
      for (std::uint64_t c = below(3); c > 0; --c) fill(*entry.add_data());
      entry.set_end_of_sequence(coin());
    }
  }
  void fill(proto::StructuredValue& value, int depth) {
    static constexpr int kTypes[] = {1, 3, 7, 9, 14};
    switch (depth > 3 ? below(2) : below(6)) {
      case 0: {
        proto::TensorSpecProto& spec = *value.mutable_tensor_spec_value();
        spec.set_dtype(kTypes[below(std::size(kTypes))]);
        fill(*spec.mutable_shape(), /*is_specification=*/true);
        return;
      }
      case 1: {
        proto::BoundedTensorSpecProto& spec = *value.mutable_bounded_tensor_spec_value();
        spec.set_dtype(1);
        spec.set_name(word());
        fill(*spec.mutable_shape(), /*is_specification=*/true);
        spec.mutable_minimum()->set_dtype(1);
        return;
      }
      case 2:
        value.mutable_list_value();
        for (std::uint64_t i = below(4); i > 0; --i) {
          fill(*value.mutable_list_value()->add_values(), depth + 1);
        }
        return;
      case 3:
        value.mutable_tuple_value();
        for (std::uint64_t i = below(4); i > 0; --i) {
          fill(*value.mutable_tuple_value()->add_values(), depth + 1);
        }
        return;
      case 4:
        value.mutable_dict_value();
        for (std::uint64_t i = below(4); i > 0; --i) {
          fill((*value.mutable_dict_value()->mutable_fields())[word() + "\"\\\n"], depth + 1);
        }
        return;
      default:
        value.mutable_named_tuple_value()->set_name(word());
        for (std::uint64_t i = below(4); i > 0; --i) {
          proto::PairValue& pair = *value.mutable_named_tuple_value()->add_values();
          pair.set_key(word());
          fill(*pair.mutable_value(), depth + 1);
        }
    }
  }
  void fill(proto::KeyDistributionOptions& selector) {
    switch (below(5)) {
      case 0:
        selector.set_fifo(true);
        break;
      case 1:
        selector.set_uniform(true);
        break;
      case 2:
        selector.mutable_prioritized()->set_priority_exponent(real());
        break;
      case 3:
        selector.mutable_heap()->set_min_heap(coin());
        break;
      default:
        selector.set_lifo(true);
    }
    selector.set_is_deterministic(!selector.has_uniform() && !selector.has_prioritized());
  }
  void fill(proto::TableInfo& info) {
    fill(*info.mutable_sampler_options());
    fill(*info.mutable_remover_options());
    info.set_name(word());
    info.set_max_size(number64());
    info.set_max_times_sampled(number32());
    info.set_current_size(number64());
    info.set_num_episodes(number64());
    info.set_num_deleted_episodes(number64());
    info.set_num_unique_samples(number64());
    proto::RateLimiterInfo& limiter = *info.mutable_rate_limiter_info();
    limiter.set_samples_per_insert(real());
    limiter.set_min_diff(real());
    limiter.set_max_diff(real());
    limiter.set_min_size_to_sample(number64());
    limiter.mutable_insert_stats()->set_completed(number64());
    limiter.mutable_sample_stats()->set_completed(number64());
  }

  Random random_{std::uint64_t{11}};
};

// Each prefix of the bytes is accepted by both or refused by both.
template <typename T, typename Read>
void expect_same_prefixes(const std::string& bytes, Read read) {
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    // A separate allocation, so that the sanitizer detects a read past its end.
    const auto cut = std::make_unique<char[]>(size + 1);
    std::copy_n(bytes.data(), size, cut.get());
    T message;
    const bool theirs = message.ParseFromArray(cut.get(), static_cast<int>(size));
    const bool ours = read(Bytes(reinterpret_cast<const std::byte*>(cut.get()), size));
    ASSERT_EQ(ours, theirs) << "cut at " << size << " of " << bytes.size();
  }
}

TEST_F(ReverbWireOracle, InsertRequestsAreReadAndWrittenAlike) {
  wire::InsertStreamRequest reused;
  for (int round = 0; round < kRounds; ++round) {
    proto::InsertStreamRequest theirs;
    fill(theirs);
    const std::string bytes = theirs.SerializeAsString();
    const auto ours = wire::read_insert_request(wire::bytes_of(bytes));
    ASSERT_TRUE(ours.ok()) << ours.status().to_string();
    std::string items;
    for (const wire::WireItem& item : ours->items) wire::put_item(items, item);
    const std::string again =
        wire::write_numbered_request(ours->chunks, items, ours->keep_chunk_keys, ours->first_number,
                                     ours->settled_below)
            .flat();
    expect_equal(parsed<proto::InsertStreamRequest>(again), theirs);
    ASSERT_TRUE(wire::read_insert_request(wire::bytes_of(bytes), {}, reused).ok());
    items.clear();
    for (const wire::WireItem& item : reused.items) wire::put_item(items, item);
    EXPECT_EQ(again, wire::write_numbered_request(reused.chunks, items, reused.keep_chunk_keys,
                                                  reused.first_number, reused.settled_below)
                         .flat())
        << "in the memory of the one before";
    if (round < 30) {
      expect_same_prefixes<proto::InsertStreamRequest>(
          bytes, [](Bytes cut) { return wire::read_insert_request(cut).ok(); });
    }
  }
}

TEST_F(ReverbWireOracle, StoredChunksAreReadAlike) {
  for (int round = 0; round < kRounds; ++round) {
    proto::InsertStreamRequest theirs;
    for (std::uint64_t i = below(4); i > 0; --i) theirs.add_stored_chunks(word());
    const std::string bytes = theirs.SerializeAsString();
    const auto ours = wire::read_insert_request(wire::bytes_of(bytes)).value();
    ASSERT_EQ(ours.stored_chunks.size(), static_cast<std::size_t>(theirs.stored_chunks_size()));
    for (std::size_t i = 0; i < ours.stored_chunks.size(); ++i) {
      EXPECT_EQ(wire::text_of(ours.stored_chunks[i]), theirs.stored_chunks(static_cast<int>(i)));
    }
  }
}

TEST_F(ReverbWireOracle, PackedResponsesAreReadAndWrittenAlike) {
  for (int round = 0; round < kRounds; ++round) {
    proto::SampleStreamResponse theirs;
    theirs.set_packed("packed " + word());
    theirs.set_sampler_mass(real());
    const std::string bytes = theirs.SerializeAsString();
    const auto ours = wire::read_packed_response(wire::bytes_of(bytes)).value();
    std::string again = wire::packed_response_head(ours.samples.size());
    again += wire::text_of(ours.samples);
    wire::put_packed_response_tail(again, ours.sampler_mass);
    expect_equal(parsed<proto::SampleStreamResponse>(again), theirs);
    expect_same_prefixes<proto::SampleStreamResponse>(
        bytes, [](Bytes cut) { return wire::read_packed_response(cut).ok(); });
  }
}

TEST_F(ReverbWireOracle, SampleResponsesAreReadAndWrittenAlike) {
  for (int round = 0; round < kRounds; ++round) {
    proto::SampleStreamResponse theirs;
    fill(theirs);
    const std::string bytes = theirs.SerializeAsString();
    const auto ours = wire::read_sample_response(wire::bytes_of(bytes));
    ASSERT_TRUE(ours.ok()) << ours.status().to_string();
    wire::PiecedMessage message;
    for (const wire::SampleEntry& entry : *ours) {
      const std::string info = entry.info ? wire::write_sample_info(*entry.info) : "";
      wire::put_sample_entry(message, info, entry.chunks, entry.end_of_sequence);
    }
    EXPECT_EQ(message.flat().size(), message.size_bytes());
    expect_equal(parsed<proto::SampleStreamResponse>(message.flat()), theirs);
    if (round < 30) {
      expect_same_prefixes<proto::SampleStreamResponse>(
          bytes, [](Bytes cut) { return wire::read_sample_response(cut).ok(); });
    }
  }
}

TEST_F(ReverbWireOracle, SmallRequestsAreReadAndWrittenAlike) {
  for (int round = 0; round < kRounds; ++round) {
    proto::SampleStreamRequest sample;
    sample.set_table(word());
    sample.set_num_samples(number64());
    sample.mutable_rate_limiter_timeout()->set_milliseconds(number64());
    const std::string sample_bytes = sample.SerializeAsString();
    const auto our_sample = wire::read_sample_request(wire::bytes_of(sample_bytes)).value();
    expect_equal(parsed<proto::SampleStreamRequest>(wire::write_sample_request(our_sample)),
                 sample);

    proto::MutatePrioritiesRequest mutate;
    mutate.set_table(word());
    for (std::uint64_t i = below(4); i > 0; --i) {
      proto::KeyWithPriority& update = *mutate.add_updates();
      update.set_key(number());
      update.set_priority(real());
    }
    for (std::uint64_t i = below(4); i > 0; --i) mutate.add_delete_keys(number());
    const std::string mutate_bytes = mutate.SerializeAsString();
    const auto ours = wire::read_mutate_request(wire::bytes_of(mutate_bytes)).value();
    expect_equal(parsed<proto::MutatePrioritiesRequest>(wire::write_mutate_request(
                     ours.table, ours.keys, ours.priorities, ours.deletes)),
                 mutate);
    expect_same_prefixes<proto::MutatePrioritiesRequest>(
        mutate_bytes, [](Bytes cut) { return wire::read_mutate_request(cut).ok(); });

    proto::InsertStreamResponse response;
    for (std::uint64_t i = below(4); i > 0; --i) response.add_keys(number());
    const std::string response_bytes = response.SerializeAsString();
    const auto keys = wire::read_insert_response(wire::bytes_of(response_bytes)).value().keys;
    expect_equal(parsed<proto::InsertStreamResponse>(wire::write_insert_response(keys)), response);

    proto::InsertStreamResponse numbered;
    numbered.set_requests_taken(number());
    for (std::uint64_t i = 2 * below(4); i > 0; --i) numbered.add_confirmed(number());
    numbered.set_stored_chunk_version(number());
    const std::string numbered_bytes = numbered.SerializeAsString();
    const auto taken = wire::read_insert_response(wire::bytes_of(numbered_bytes)).value();
    expect_equal(parsed<proto::InsertStreamResponse>(wire::write_numbered_response(
                     taken.confirmed, taken.requests_taken, taken.stored_chunk_version)),
                 numbered);

    proto::ResetRequest reset;
    reset.set_table(word());
    const std::string reset_bytes = reset.SerializeAsString();
    expect_equal(parsed<proto::ResetRequest>(wire::write_reset_request(
                     wire::read_reset_request(wire::bytes_of(reset_bytes)).value())),
                 reset);

    proto::CheckpointRequest checkpoint;
    checkpoint.set_payload(word());
    const std::string checkpoint_bytes = checkpoint.SerializeAsString();
    expect_equal(parsed<proto::CheckpointRequest>(wire::write_checkpoint_request(
                     wire::read_checkpoint_request(wire::bytes_of(checkpoint_bytes)).value())),
                 checkpoint);
    proto::CheckpointResponse written;
    written.set_checkpoint_path(word());
    written.set_payload_bytes(below(3));
    const std::string written_bytes = written.SerializeAsString();
    expect_equal(parsed<proto::CheckpointResponse>(wire::write_checkpoint_response(
                     wire::read_checkpoint_response(wire::bytes_of(written_bytes)).value())),
                 written);

    proto::ServerInfoRequest asked;
    if (coin()) asked.set_wants_client_number(true);
    if (coin()) asked.set_wants_origin(true);
    const std::string asked_bytes = asked.SerializeAsString();
    expect_equal(parsed<proto::ServerInfoRequest>(wire::write_info_request(
                     wire::read_info_request(wire::bytes_of(asked_bytes)).value())),
                 asked);

    proto::InitializeConnectionRequest initialize;
    initialize.set_pid(number64());
    initialize.set_table_name(word());
    initialize.set_ownership_transferred(coin());
    const std::string initialize_bytes = initialize.SerializeAsString();
    const auto connection = wire::read_initialize_request(wire::bytes_of(initialize_bytes)).value();
    EXPECT_EQ(connection.pid, initialize.pid());
    EXPECT_EQ(connection.table, initialize.table_name());
    EXPECT_EQ(connection.ownership_transferred, initialize.ownership_transferred());
  }
}

TEST_F(ReverbWireOracle, UnpackedKeysAreReadToo) {
  // Field 1 twice as a single varint, then packed.
  const std::string bytes("\x08\x05\x08\x06\x0a\x02\x07\x08", 8);
  EXPECT_EQ(wire::read_insert_response(wire::bytes_of(bytes)).value().keys,
            (std::vector<ItemKey>{5, 6, 7, 8}));
}

TEST_F(ReverbWireOracle, TablesAreReadAndWrittenAlike) {
  for (int round = 0; round < kRounds; ++round) {
    proto::ServerInfoResponse theirs;
    theirs.mutable_tables_state_id()->set_high(number());
    theirs.mutable_tables_state_id()->set_low(number());
    for (std::uint64_t i = below(3); i > 0; --i) fill(*theirs.add_table_info());
    if (coin()) theirs.set_client_number(1 + below(9));
    if (coin()) {
      theirs.mutable_origin()->set_path(word());
      theirs.mutable_origin()->set_payload(word());
    }
    const std::string bytes = theirs.SerializeAsString();
    const auto ours = wire::read_info_response(wire::bytes_of(bytes));
    ASSERT_TRUE(ours.ok());
    expect_equal(parsed<proto::ServerInfoResponse>(wire::write_info_response(*ours)), theirs);
    expect_same_prefixes<proto::ServerInfoResponse>(
        bytes, [](Bytes cut) { return wire::read_info_response(cut).ok(); });
  }
}

TEST_F(ReverbWireOracle, MoreSamplesOfAnItemThanFitAreWrittenAsTheLargestNumber) {
  wire::ServerInfoResponse ours;
  ours.tables.emplace_back().options.max_times_sampled = (std::int64_t{1} << 32) + 1;
  const auto theirs = parsed<proto::ServerInfoResponse>(wire::write_info_response(ours));
  EXPECT_EQ(theirs.table_info(0).max_times_sampled(), 0x7fffffff);
}

// What is left of a specification without its original bytes: no bounds and no names.
void strip(proto::StructuredValue& value) {
  if (value.has_bounded_tensor_spec_value()) {
    const proto::BoundedTensorSpecProto bounded = value.bounded_tensor_spec_value();
    *value.mutable_tensor_spec_value()->mutable_shape() = bounded.shape();
    value.mutable_tensor_spec_value()->set_dtype(bounded.dtype());
  }
  if (value.has_list_value()) {
    for (auto& inner : *value.mutable_list_value()->mutable_values()) strip(inner);
  }
  if (value.has_tuple_value()) {
    for (auto& inner : *value.mutable_tuple_value()->mutable_values()) strip(inner);
  }
  if (value.has_dict_value()) {
    for (auto& [key, inner] : *value.mutable_dict_value()->mutable_fields()) strip(inner);
  }
  if (value.has_named_tuple_value()) {
    for (auto& pair : *value.mutable_named_tuple_value()->mutable_values()) {
      strip(*pair.mutable_value());
    }
  }
}

TEST_F(ReverbWireOracle, SignaturesAreReadAndWrittenAlike) {
  for (int round = 0; round < 3 * kRounds; ++round) {
    proto::StructuredValue theirs;
    fill(theirs, 0);
    const std::string bytes = theirs.SerializeAsString();
    auto ours = wire::read_signature(wire::bytes_of(bytes));
    ASSERT_TRUE(ours.ok()) << ours.status().to_string() << theirs.DebugString();
    EXPECT_EQ(wire::write_signature(*ours).value(), bytes);  // names and bounds included
    ours->original.clear();
    const auto again = wire::write_signature(*ours);
    ASSERT_TRUE(again.ok()) << again.status().to_string() << ours->structure;
    strip(theirs);
    expect_equal(parsed<proto::StructuredValue>(*again), theirs);
  }
}

TEST_F(ReverbWireOracle, ChunksKeepTheirMessageAndDescribeItsTensors) {
  wire::SchemaCache schemas;
  for (int round = 0; round < kRounds; ++round) {
    proto::ChunkData theirs;
    fill(theirs);
    const std::string bytes = theirs.SerializeAsString();
    const auto chunk = wire::read_chunk(buffer_of(bytes), schemas);
    ASSERT_TRUE(chunk.ok()) << chunk.status().to_string() << theirs.DebugString();
    const Chunk& ours = **chunk;
    EXPECT_EQ(wire::text_of(ours.enveloped(Chunk::Envelope::kWireMessage)), bytes);
    EXPECT_EQ(ours.key(), theirs.chunk_key());
    EXPECT_EQ(wire::chunk_key_of(wire::bytes_of(bytes)).value(), theirs.chunk_key());
    EXPECT_EQ(ours.episode(), theirs.sequence_range().episode_id());
    ASSERT_EQ(ours.schema().column_count(), static_cast<std::size_t>(theirs.data().tensors_size()));
    for (int i = 0; i < theirs.data().tensors_size(); ++i) {
      const proto::TensorProto& tensor = theirs.data().tensors(i);
      const auto column = static_cast<std::size_t>(i);
      EXPECT_EQ(ours.rows(), tensor.tensor_shape().dim(0).size());
      EXPECT_EQ(wire::text_of(ours.encoded_bytes(column)), tensor.tensor_content());
      const Shape& shape = ours.schema().column(column).shape;
      ASSERT_EQ(shape.size() + 1, static_cast<std::size_t>(tensor.tensor_shape().dim_size()));
      for (std::size_t d = 0; d < shape.size(); ++d) {
        EXPECT_EQ(shape[d], tensor.tensor_shape().dim(static_cast<int>(d) + 1).size());
      }
    }
    // The whole message needs all its bytes, but a prefix may be a valid shorter message, whose
    // rows must point into it.
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      const auto cut = wire::read_chunk(buffer_of(bytes.substr(0, size)), schemas);
      if (!cut.ok()) continue;
      proto::ChunkData message;
      EXPECT_TRUE(message.ParseFromString(bytes.substr(0, size)));
    }
  }
}

TEST_F(ReverbWireOracle, OurChunksAreReadByProtobuf) {
  const auto schema = make_ref<ChunkSchema>(std::vector<TensorSpec>{
      {"x", DType::kInt32, {2}}, {"word", DType::kString, {}}, {"flag", DType::kBool, {}}});
  const Ref<Chunk> chunk = Chunk::open(schema, {77, 5, 100}, 4, 1024, Allocator::heap()).value();
  for (std::uint32_t row = 0; row < 4; ++row) {
    const std::int32_t x[2] = {static_cast<std::int32_t>(row), -1};
    const std::string text("\x02\0\0\0ab", 6);
    const bool flag = row % 2 == 1;
    chunk->set_row(0, row, std::as_bytes(std::span(x)));
    if (row != 2) chunk->set_row(1, row, wire::bytes_of(text));
    if (row == 2) chunk->set_row(1, row, {});
    chunk->set_row(2, row, std::as_bytes(std::span(&flag, 1)));
  }
  chunk->publish(4);
  const std::string bytes = wire::write_chunk(*chunk, 1, 4, 99).value();
  const auto theirs = parsed<proto::ChunkData>(bytes);
  EXPECT_EQ(theirs.chunk_key(), 99u);
  EXPECT_EQ(theirs.sequence_range().episode_id(), 5u);
  EXPECT_EQ(theirs.sequence_range().start(), 101);
  EXPECT_EQ(theirs.sequence_range().end(), 103);
  EXPECT_EQ(theirs.data_tensors_len(), 3);
  ASSERT_EQ(theirs.data().tensors_size(), 3);
  EXPECT_EQ(theirs.data().tensors(0).dtype(), 3);
  EXPECT_EQ(theirs.data().tensors(0).tensor_shape().dim(0).size(), 3);
  EXPECT_EQ(theirs.data().tensors(0).tensor_shape().dim(1).size(), 2);
  EXPECT_EQ(theirs.data().tensors(1).tensor_content(), std::string("\x02\x00\x02"
                                                                   "abab",
                                                                   7));

  wire::SchemaCache schemas;
  const Ref<Chunk> back = wire::read_chunk(buffer_of(bytes), schemas).value();
  EXPECT_EQ(back->first_step(), 101u);
  const auto rows = decode_column(back->encoded_column(0).codec, back->schema().column(0), 3,
                                  back->encoded_bytes(0))
                        .value();
  for (std::uint32_t row = 0; row < 3; ++row) {
    EXPECT_TRUE(std::ranges::equal(rows[row], chunk->row_bytes(0, row + 1)));
  }
  // A chunk that arrived encoded is encoded the same way again.
  const std::string again = wire::write_chunk(*back, 0, 3, 99).value();
  expect_equal(parsed<proto::ChunkData>(again).data(), theirs.data());
}

}  // namespace
}  // namespace reverie
