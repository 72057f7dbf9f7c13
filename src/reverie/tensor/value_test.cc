#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

std::string text_of(const ValueToken& token) {
  return {reinterpret_cast<const char*>(token.bytes.data()), token.bytes.size()};
}

// A payload in the form in which it arrives, with its bulk in one piece.
Payload received(const Payload& sent) {
  Payload got;
  got.head = sent.head;
  auto bulk = std::make_shared<std::vector<std::byte>>();
  for (const BulkPiece& piece : sent.bulk) {
    bulk->resize(Payload::padded(bulk->size()));
    bulk->insert(bulk->end(), piece.bytes.begin(), piece.bytes.end());
  }
  const std::span<const std::byte> view = *bulk;
  if (!bulk->empty()) got.bulk.push_back({view, std::move(bulk)});
  return got;
}

TEST(Values, SurviveARoundTrip) {
  const float numbers[] = {1.5f, -2.0f, 3.25f};
  const std::int64_t shape[] = {3, 1};
  const std::byte magnitude[] = {std::byte{1}, std::byte{2}, std::byte{3}};
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kDict, 4);
  writer.text("record");
  writer.begin_record("Config lr", 1);
  writer.real(0.5);
  writer.text("pickle");
  writer.pickled(magnitude);
  writer.text("a");
  writer.begin(ValueKind::kList, 6);
  writer.none();
  writer.boolean(true);
  writer.integer(std::numeric_limits<std::int64_t>::min());
  writer.big_integer(true, magnitude);
  writer.real(0.1);
  writer.bytes(magnitude);
  writer.text("b");
  writer.begin_named_tuple("Point x y", 2);
  writer.tensor(DType::kFloat32, shape, std::as_bytes(std::span(numbers)), TensorMaker::kTorch);
  writer.tensor(DType::kUInt8, std::span(shape).first(1), magnitude, TensorMaker::kNumpy);

  const Payload got = received(payload);
  ValueReader reader(got);
  const auto next = [&] {
    Result<ValueToken> token = reader.next();
    EXPECT_TRUE(token.ok()) << token.status().to_string();
    return token.ok() ? std::move(*token) : ValueToken();
  };
  EXPECT_EQ(next().count, 4u);
  EXPECT_EQ(text_of(next()), "record");
  const ValueToken record = next();
  EXPECT_EQ(record.kind, ValueKind::kRecord);
  EXPECT_EQ(record.count, 1u);
  EXPECT_EQ(text_of(record), "Config lr");
  EXPECT_EQ(next().real, 0.5);
  EXPECT_EQ(text_of(next()), "pickle");
  const ValueToken pickle = next();
  EXPECT_EQ(pickle.kind, ValueKind::kPickled);
  EXPECT_EQ(text_of(pickle), "\1\2\3");
  EXPECT_EQ(text_of(next()), "a");
  EXPECT_EQ(next().count, 6u);
  EXPECT_EQ(next().kind, ValueKind::kNone);
  EXPECT_EQ(next().kind, ValueKind::kTrue);
  EXPECT_EQ(next().integer, std::numeric_limits<std::int64_t>::min());
  const ValueToken big = next();
  EXPECT_TRUE(big.is_negative);
  EXPECT_EQ(text_of(big), "\1\2\3");
  EXPECT_EQ(next().real, 0.1);
  EXPECT_EQ(next().kind, ValueKind::kBytes);
  EXPECT_EQ(text_of(next()), "b");
  EXPECT_FALSE(reader.done());
  const ValueToken point = next();
  EXPECT_EQ(text_of(point), "Point x y");
  const ValueToken tensor = next();
  EXPECT_EQ(tensor.shape, Shape(shape, shape + 2));
  EXPECT_EQ(tensor.maker, TensorMaker::kTorch);
  EXPECT_EQ(std::memcmp(tensor.bytes.data(), numbers, sizeof(numbers)), 0);
  EXPECT_EQ(text_of(next()), "\1\2\3");
  EXPECT_TRUE(reader.done());
}

// A writer counts only the pieces that were added since its last tensor.
TEST(Values, ManyTensorsAreFoundWhicheverWriterOfThePayloadAddedThem) {
  constexpr std::size_t kCount = 10'000;
  const auto bytes_of = [](std::size_t i) {
    return std::vector<std::byte>(1 + i % 70, static_cast<std::byte>(i));
  };
  Payload payload;
  ValueWriter first(payload);
  ValueWriter second(payload);
  first.begin(ValueKind::kList, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const std::vector<std::byte> bytes = bytes_of(i);
    const std::int64_t shape[] = {static_cast<std::int64_t>(bytes.size())};
    (i % 3 == 0 ? first : second).tensor(DType::kUInt8, shape, bytes, TensorMaker::kNumpy);
  }
  const Payload got = received(payload);
  ValueReader reader(got);
  ASSERT_EQ(reader.next()->count, kCount);
  for (std::size_t i = 0; i < kCount; ++i) {
    const Result<ValueToken> tensor = reader.next();
    ASSERT_TRUE(tensor.ok()) << tensor.status().to_string();
    ASSERT_TRUE(std::ranges::equal(tensor->bytes, bytes_of(i))) << i;
  }
  EXPECT_TRUE(reader.done());
}

TEST(Values, OfADeviceComeAsBytesOrAsAPlaceInItsMemory) {
  const float numbers[] = {1.5f, -2.0f, 3.25f};
  const std::int64_t shape[] = {3};
  DeviceRecord record;
  record.device[15] = std::byte{1};
  record.owner[0] = std::byte{2};
  record.allocation = 3;
  record.offset = 4;
  record.handle[63] = std::byte{5};
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kList, 2);
  writer.lent_tensor(DType::kFloat32, shape, std::as_bytes(std::span(numbers)), TensorMaker::kTorch,
                     record.device, nullptr);
  writer.device_tensor(DType::kFloat32, shape, TensorMaker::kTorch, record);
  const Payload got = received(payload);
  ValueReader reader(got);
  ASSERT_EQ(reader.next()->count, 2u);
  const ValueToken bytes = *reader.next();
  EXPECT_EQ(bytes.kind, ValueKind::kDeviceTensor);
  EXPECT_TRUE(std::ranges::equal(bytes.device, record.device));
  EXPECT_EQ(std::memcmp(bytes.bytes.data(), numbers, sizeof(numbers)), 0);
  const ValueToken place = *reader.next();
  EXPECT_EQ(place.size_bytes, sizeof(numbers));
  EXPECT_TRUE(place.bytes.empty());
  ASSERT_EQ(place.device.size(), kDeviceRecordBytes);
  const DeviceRecord found = decode_device_record(place.device.first<kDeviceRecordBytes>());
  EXPECT_EQ(found.device, record.device);
  EXPECT_EQ(found.owner, record.owner);
  EXPECT_EQ(found.allocation, record.allocation);
  EXPECT_EQ(found.offset, record.offset);
  EXPECT_EQ(found.handle, record.handle);
  EXPECT_TRUE(reader.done());
  const std::size_t way_at = 7;  // after the list, the tag, the types and the shape
  Payload unknown = got;
  ASSERT_EQ(unknown.head[way_at], std::byte{0});
  unknown.head[way_at] = std::byte{2};
  ValueReader unknown_reader(unknown);
  ASSERT_TRUE(unknown_reader.next().ok());
  EXPECT_EQ(unknown_reader.next().status().code(), StatusCode::kDataLoss);
}

TEST(Values, AreRefusedIfCutAnywhere) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 4);
  const std::int64_t shape[] = {3};
  writer.device_tensor(DType::kFloat32, shape, TensorMaker::kTorch, {});
  writer.text("some text");
  writer.integer(1'000'000);
  writer.real(1.0);
  for (std::size_t size = 1; size < payload.head.size(); ++size) {
    Payload cut;
    cut.head.assign(payload.head.begin(), payload.head.begin() + static_cast<std::ptrdiff_t>(size));
    ValueReader reader(cut);
    Status status;
    while (status.ok() && !reader.done()) status = reader.next().status();
    EXPECT_EQ(status.code(), StatusCode::kDataLoss) << size;
  }
}

TEST(Values, AreNestedOnlyToABoundedDepth) {
  Payload payload;
  ValueWriter writer(payload);
  for (std::size_t i = 0; i <= kValueDepthMax; ++i) writer.begin(ValueKind::kList, 1);
  writer.none();
  ValueReader reader(payload);
  Status status;
  std::size_t depth = 0;
  for (; status.ok() && !reader.done(); ++depth) status = reader.next().status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(depth, kValueDepthMax + 1);
}

TEST(Values, MayNotClaimMoreThanTheirBytes) {
  Payload list;
  ValueWriter(list).begin(ValueKind::kList, std::size_t{1} << 60);
  EXPECT_EQ(ValueReader(list).next().status().code(), StatusCode::kDataLoss);
  Payload tensor;
  const std::int64_t shape[] = {1 << 20, 1 << 20};
  ValueWriter(tensor).lent_tensor(DType::kFloat64, shape, {}, TensorMaker::kNumpy, nullptr);
  EXPECT_EQ(ValueReader(tensor).next().status().code(), StatusCode::kDataLoss);
}

// A container's memory is allocated at once, so 64 nested ones could each claim the whole message.
TEST(Values, MayNotTogetherClaimMoreThanTheirBytes) {
  constexpr std::size_t kBytes = 1000;
  Payload payload;
  ValueWriter writer(payload);
  for (std::size_t i = 0; i < 40; ++i) writer.begin(ValueKind::kTuple, kBytes - 200);
  while (payload.head.size() < kBytes) writer.none();
  ValueReader reader(payload);
  std::size_t lacking = 0;
  Status status;
  while (status.ok()) {
    const Result<ValueToken> token = reader.next();
    status = token.status();
    if (token.ok()) lacking += token->count;
  }
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_LE(lacking, kBytes);
}

TEST(Values, MayNotHoldTooManyContainers) {
  constexpr std::size_t kCount = (std::size_t{1} << 20) + 1;
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kList, kCount);
  for (std::size_t i = 0; i < kCount; ++i) writer.begin(ValueKind::kSet, 0);
  ValueReader reader(payload);
  std::size_t count = 0;
  Status status;
  for (; status.ok(); ++count) status = reader.next().status();
  EXPECT_EQ(status.code(), StatusCode::kDataLoss);
  EXPECT_LE(count, kCount);
}

}  // namespace
}  // namespace reverie
