#include "reverie/reverb_wire/chunk_data.h"

#include <gtest/gtest.h>

#include "reverie/codec/column_codec.h"
#include "reverie/reverb_wire/tensor_type.h"
#include "tests/support/refusal.h"
#include "tests/support/values.h"

namespace reverie::wire {
namespace {

std::string tensor(int dtype, const Shape& shape, const std::string& content = "x") {
  std::string out;
  put_int(out, 1, dtype);
  put_message(out, 2, write_shape(shape));
  put_text(out, 4, content);
  return out;
}

std::string chunk(const std::vector<std::string>& tensors) {
  std::string data;
  for (const std::string& t : tensors) put_message(data, 1, t);
  std::string out;
  put_uint(out, 1, 5);
  put_message(out, 5, data);
  return out;
}

Result<Ref<Chunk>> read(const std::string& bytes) {
  SchemaCache schemas;
  Buffer buffer = Allocator::heap().allocate(bytes.size()).value();
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(buffer.data()));
  return read_chunk(std::move(buffer), schemas);
}

void expect_refusal(const std::string& bytes, const std::vector<std::string>& words) {
  expect_refused(read(bytes).status(), StatusCode::kInvalidArgument, words);
}

TEST(ReverbChunk, RefusesTensorsThatDoNotFormRows) {
  EXPECT_TRUE(read(chunk({tensor(1, {3, 2})})).ok());
  expect_refusal(chunk({}), {"chunk 5", "no tensors"});
  expect_refusal(chunk({tensor(1, {})}), {"scalar"});
  expect_refusal(chunk({tensor(1, {0, 2})}), {"0 rows"});
  expect_refusal(chunk({tensor(1, {-1, 2})}), {"-1 rows"});
  expect_refusal(chunk({tensor(1, {3, -1})}), {"(?,)"});
  expect_refusal(chunk({tensor(1, {3}), tensor(1, {4})}), {"3 and 4 rows"});
  expect_refusal(chunk({tensor(20, {3})}), {"data type 20"});
  expect_refusal(chunk({tensor(1, {3, -2})}), {"extent -2"});
  expect_refusal(chunk({tensor(1, Shape(255, 1))}), {"254 axes"});
}

TEST(ReverbChunk, RefusesShapesThatMemoryCannotHold) {
  const std::int64_t big = std::int64_t{1} << 40;
  expect_refusal(chunk({tensor(1, {1, big, big})}), {"shape"});
  expect_refusal(chunk({tensor(1, {1, std::int64_t{1} << 32})}), {"4294967296"});
  expect_refusal(chunk({tensor(1, {std::int64_t{1} << 32, 2})}), {"4294967296 rows"});
}

TEST(ReverbChunk, RefusesTheFormatsOfOldClients) {
  std::string old = chunk({tensor(1, {3})});
  put_message(old, 3, tensor(1, {3}));
  expect_refused(read(old).status(), StatusCode::kUnimplemented, {"dm-reverb 0.14"});
  std::string values = tensor(1, {1}, "");
  put_message(values, 5, "1234");
  expect_refused(read(chunk({values})).status(), StatusCode::kUnimplemented, {"tensor_content"});
}

TEST(ReverbChunk, StringsInSeparateFieldsAreMovedIntoTheContent) {
  std::string values = tensor(7, {2, 2}, "");
  for (const char* word : {"ab", "", "c", "def"}) put_message(values, 8, word);
  std::string bytes = chunk({tensor(1, {2}), values, tensor(7, {2}, "unmoved")});
  put_message(bytes, 2, "");  // after the tensors, since fields may come in any order
  const Ref<Chunk> read_back = read(bytes).value();
  EXPECT_EQ(read_back->key(), 5u);
  EXPECT_EQ(read_back->schema().column(1), (TensorSpec{"", DType::kBytes, {2}}));
  EXPECT_EQ(text_of(read_back->encoded_bytes(0)), "x");
  EXPECT_EQ(text_of(read_back->encoded_bytes(1)), std::string("\2\0\1\3abcdef", 10));
  EXPECT_EQ(text_of(read_back->encoded_bytes(2)), "unmoved");
  const ColumnRows rows =
      decode_column(read_back->encoded_column(1).codec, read_back->schema().column(1), 2,
                    read_back->encoded_bytes(1))
          .value();
  EXPECT_EQ(text_of(rows[1]), std::string("\1\0\0\0c\3\0\0\0def", 12));
  // The message that is passed on reads the same.
  EXPECT_TRUE(read(std::string(text_of(read_back->enveloped(Chunk::Envelope::kWireMessage)))).ok());
}

TEST(ReverbChunk, RefusesANumberOfStringsThatDiffersFromTheElements) {
  std::string values = tensor(7, {2}, "");
  put_message(values, 8, "one");
  expect_refusal(chunk({values}), {"2 rows", "1 strings"});
  std::string numbers = tensor(1, {1}, "");
  put_message(numbers, 8, "one");
  expect_refusal(chunk({numbers}), {"1 strings"});
  std::string many = tensor(7, {1 << 20, std::int64_t{1} << 31}, "");
  put_message(many, 8, "one");
  expect_refusal(chunk({many}), {"1 strings"});
}

TEST(ReverbChunk, AppliesDeltaToTheColumnsThatReverbDoes) {
  std::string bytes = chunk({tensor(1, {3, 2}), tensor(4, {3, 2}), tensor(4, {3}), tensor(7, {3})});
  put_bool(bytes, 4, true);  // after the tensors, since fields may come in any order
  const Ref<Chunk> read_back = read(bytes).value();
  EXPECT_EQ(read_back->encoded_column(0).codec, CodecId::kReverb);
  EXPECT_EQ(read_back->encoded_column(1).codec, CodecId::kReverbDelta);
  EXPECT_EQ(read_back->encoded_column(2).codec, CodecId::kReverb);
  EXPECT_EQ(read_back->encoded_column(3).codec, CodecId::kReverb);
}

TEST(ReverbChunk, RefusesTypesWithoutANumberInTheProtocol) {
  const auto schema =
      make_ref<ChunkSchema>(std::vector<TensorSpec>{{"small", DType::kFloat8E5M2FNUZ, {}}});
  const Ref<Chunk> made = Chunk::open(schema, {1}, 1, 0, Allocator::heap()).value();
  made->publish(1);
  expect_refused(write_chunk(*made, 0, 1, 1).status(), StatusCode::kUnimplemented,
                 {"'small'", "float8_e5m2fnuz"});
}

TEST(ReverbChunk, ContentMayBeMuchShorterThanItsRows) {
  constexpr std::uint32_t kRows = 400;
  // Empty words and zeros, with either column first.
  for (const bool words_first : {true, false}) {
    std::vector<TensorSpec> columns = {{"words", DType::kString, {}}, {"x", DType::kFloat64, {50}}};
    if (!words_first) std::swap(columns[0], columns[1]);
    const auto schema = make_ref<ChunkSchema>(columns);
    const Value word = text("");
    const std::size_t words_bytes = kRows * word.bytes.size();
    const Ref<Chunk> made = Chunk::open(schema, {1}, kRows, words_bytes, Allocator::heap()).value();
    const std::vector<std::byte> zeros(400);
    for (std::uint32_t row = 0; row < kRows; ++row) {
      made->set_row(words_first ? 0 : 1, row, word.view().bytes);
      made->set_row(words_first ? 1 : 0, row, zeros);
    }
    made->publish(kRows);
    const std::string bytes = write_chunk(*made, 0, kRows, 7).value();
    const Ref<Chunk> back = read(bytes).value();
    EXPECT_EQ(back->key(), 7u);
    EXPECT_EQ(back->rows(), kRows);
    EXPECT_EQ(back->encoded_bytes(words_first ? 0 : 1).size(), kRows) << "a length each";
    EXPECT_LT(back->encoded_bytes(words_first ? 1 : 0).size(), kRows * 400u / 10);
    EXPECT_TRUE(write_chunk(*back, 0, kRows, 7).value() == bytes) << "not shown: it is long";
  }
}

TEST(ReverbChunk, EqualSchemasAreShared) {
  SchemaCache schemas;
  const auto a = schemas.find({{"", DType::kInt8, {3}}});
  const auto b = schemas.find({{"", DType::kInt8, {4}}});
  EXPECT_EQ(schemas.find({{"", DType::kInt8, {3}}}), a);
  EXPECT_NE(a, b);
  for (std::int64_t i = 0; i < 200; ++i) schemas.find({{"", DType::kInt8, {1000 + i}}});
  EXPECT_NE(schemas.find({{"", DType::kInt8, {3}}}), a) << "old ones are let go";
}

}  // namespace
}  // namespace reverie::wire
