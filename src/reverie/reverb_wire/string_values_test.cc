#include "reverie/reverb_wire/string_values.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace reverie::wire {
namespace {

constexpr std::uint32_t kContent = 4;
constexpr std::uint32_t kStrings = 8;

// A ChunkData with one tensor, a key before it and a flag after it.
std::string chunk_with(const std::string& tensor) {
  std::string data;
  put_message(data, 1, tensor);
  std::string out;
  put_uint(out, 1, 5);
  put_message(out, 5, data);
  put_bool(out, 7, true);
  return out;
}

std::string tensor_with(const std::vector<std::pair<std::uint32_t, std::string>>& fields) {
  std::string out;
  put_int(out, 1, 7);
  for (const auto& [number, text] : fields) put_message(out, number, text);  // also empty texts
  return out;
}

TEST(StringValues, AreMovedIntoTheContentAndAllElseIsUnchanged) {
  const std::string given = chunk_with(tensor_with({{kStrings, "ab"}, {kStrings, "c"}}));
  EXPECT_EQ(with_strings_in_content(bytes_of(given)),
            chunk_with(tensor_with({{kContent, std::string("\x02\x01", 2) + "abc"}})));
}

TEST(StringValues, MayBeEmptyOrLong) {
  const std::string empty = chunk_with(tensor_with({{kStrings, ""}, {kStrings, "x"}}));
  EXPECT_EQ(with_strings_in_content(bytes_of(empty)),
            chunk_with(tensor_with({{kContent, std::string("\0\x01", 2) + "x"}})));
  const std::string text(300, 'y');  // its size takes two bytes
  const std::string given = chunk_with(tensor_with({{kStrings, text}}));
  EXPECT_EQ(with_strings_in_content(bytes_of(given)),
            chunk_with(tensor_with({{kContent, "\xac\x02" + text}})));
}

TEST(StringValues, TruncatedBytesAreAnError) {
  const std::string given = chunk_with(tensor_with({{kStrings, "ab"}, {kStrings, "c"}}));
  // Cuts after the key and within the chunk's data, whose size is announced.
  for (std::size_t size = 3; size + 2 < given.size(); ++size) {
    const std::string cut = given.substr(0, size);
    const Result<std::string> read = read_message("ChunkData", [&]() -> Result<std::string> {
      return with_strings_in_content(bytes_of(cut));
    });
    EXPECT_EQ(read.status().code(), StatusCode::kInvalidArgument) << size;
  }
}

}  // namespace
}  // namespace reverie::wire
