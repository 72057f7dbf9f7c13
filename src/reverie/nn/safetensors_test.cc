#include "reverie/nn/safetensors.h"

#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"

namespace reverie::nn {
namespace {

std::vector<std::byte> file_of(std::string_view header, std::size_t data_bytes) {
  std::vector<std::byte> bytes(8 + header.size() + data_bytes);
  const std::uint64_t length = header.size();
  std::memcpy(bytes.data(), &length, 8);
  std::memcpy(bytes.data() + 8, header.data(), header.size());
  return bytes;
}

std::string refusal(std::string_view header, std::size_t data_bytes) {
  const Result<SafeTensors> decoded = decode_safetensors(file_of(header, data_bytes));
  return decoded.ok() ? "accepted" : decoded.status().to_string();
}

SafeTensors example() {
  SafeTensors tensors;
  tensors.metadata = {{"kind", "a \"quoted\" \\ text\nof two lines"}, {"ключ", "значение"}};
  tensors.tensors = {{"a", {2, 3}, {1, 2, 3, 4, 5, 6}}, {"empty", {0, 7}, {}}, {"one", {}, {9}}};
  return tensors;
}

TEST(SafeTensors, TensorsSurviveARoundTrip) {
  const SafeTensors tensors = example();
  const SafeTensors decoded = decode_safetensors(encode_safetensors(tensors)).value();
  EXPECT_EQ(decoded.metadata, tensors.metadata);
  ASSERT_EQ(decoded.tensors.size(), tensors.tensors.size());
  for (const NamedTensor& tensor : tensors.tensors) {
    const NamedTensor* found = decoded.find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(found->shape, tensor.shape);
    EXPECT_EQ(found->values, tensor.values);
  }
  EXPECT_EQ(decoded.find("b"), nullptr);
}

TEST(SafeTensors, BytesFollowTheFormat) {
  SafeTensors tensors;
  tensors.tensors = {{"w", {1, 2}, {1.5f, -2}}};
  const std::vector<std::byte> bytes = encode_safetensors(tensors);
  const std::string header = R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})";
  ASSERT_EQ(bytes.size(), 8 + header.size() + 8);
  EXPECT_EQ(std::memcmp(bytes.data() + 8, header.data(), header.size()), 0);
  EXPECT_EQ(static_cast<std::size_t>(bytes[0]), header.size());
}

// A file as others may write it: white space, escapes, fields and tensors in another order.
TEST(SafeTensors, ReadsFilesOfOtherWriters) {
  const std::string_view header =
      " { \"b\\u00e9\\ud83d\\ude00\" : {\"shape\": [ 1 ],\"data_offsets\":[4, "
      "8],\"dtype\":\"F32\"},\n"
      "\t\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}, \"__metadata__\":{} }   ";
  const SafeTensors decoded = decode_safetensors(file_of(header, 8)).value();
  ASSERT_EQ(decoded.tensors.size(), 2u);
  EXPECT_EQ(decoded.tensors[0].name, "a");
  EXPECT_EQ(decoded.tensors[1].name, "b\u00e9\U0001f600");
}

TEST(SafeTensors, RefusesDamagedFiles) {
  const std::string tensor = R"("dtype":"F32","shape":[1],"data_offsets":[0,4])";
  EXPECT_EQ(decode_safetensors({}).status().to_string(),
            "DATA_LOSS: 0 bytes are not a safetensors file, which has at least 8");
  EXPECT_EQ(refusal("", 0), "DATA_LOSS: the header is malformed at byte 0: '{' is missing");
  EXPECT_EQ(refusal("{} x", 0),
            "DATA_LOSS: the header is malformed at byte 3: there is more after the last '}'");
  EXPECT_EQ(refusal("{}", 4), "DATA_LOSS: 4 bytes of 4 belong to no tensor");
  EXPECT_EQ(refusal("{\"a\":{" + tensor + "},\"a\":{" + tensor + "}}", 4),
            "DATA_LOSS: the header names tensor 'a' twice");
  EXPECT_EQ(refusal("{\"a\":{" + tensor + "},\"b\":{" + tensor + "}}", 4),
            "DATA_LOSS: tensor 'b' is at bytes 0 to 4 of 4, and should begin at 4");
  EXPECT_EQ(refusal("{\"a\":{" + tensor + "}}", 3),
            "DATA_LOSS: tensor 'a' is at bytes 0 to 4 of 3, and should begin at 0");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4),
            "DATA_LOSS: tensor 'a' has a shape of another size than its 4 bytes");
  EXPECT_EQ(
      refusal(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0),
      "DATA_LOSS: tensor 'a' has a shape of another size than its 0 bytes");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})", 4),
            "UNIMPLEMENTED: tensor 'a' has the element type F16; only F32 is supported");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[2]}})", 4),
            "DATA_LOSS: tensor 'a' lacks its dtype, shape or data_offsets");
  EXPECT_EQ(refusal(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", 4),
            "DATA_LOSS: the header is malformed at byte 29: a whole number is missing");
  EXPECT_EQ(refusal(R"({"\ud800":{}})", 0),
            "DATA_LOSS: the header is malformed at byte 8: half of a surrogate pair is missing");
  std::vector<std::byte> long_header = file_of("{}", 0);
  long_header[7] = std::byte{0x40};
  EXPECT_EQ(decode_safetensors(long_header).status().code(), StatusCode::kDataLoss);
}

TEST(SafeTensors, TruncatedAndDamagedFilesAreNotReadBeyondTheirEnd) {
  const std::vector<std::byte> whole = encode_safetensors(example());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A separate allocation, so that the sanitizer detects a read past its end.
    const std::vector<std::byte> cut(whole.begin(),
                                     whole.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_FALSE(decode_safetensors(cut).ok()) << size;
  }
  Random random(std::uint64_t{73});
  for (int i = 0; i < 5'000; ++i) {
    std::vector<std::byte> changed = whole;
    changed[random.below(whole.size())] = static_cast<std::byte>(random.below(256));
    const Result<SafeTensors> decoded = decode_safetensors(changed);
    if (!decoded.ok()) continue;
    for (const NamedTensor& tensor : decoded->tensors) EXPECT_LE(tensor.values.size(), 7u);
  }
}

}  // namespace
}  // namespace reverie::nn
