#include "reverie/reverb_wire/signature.h"

#include <gtest/gtest.h>

#include "tests/support/refusal.h"

namespace reverie::wire {
namespace {

Signature signature(std::string structure, std::size_t columns) {
  Signature made;
  made.structure = std::move(structure);
  for (std::size_t i = 0; i < columns; ++i) {
    made.columns.push_back({std::to_string(i), DType::kFloat32, {-1, 3}});
  }
  return made;
}

TEST(ReverbSignature, ANestBelowTheBoundIsKeptAndADeeperOneRefused) {
  std::string value;
  put_message(value, 33, "\x18\x01");  // a scalar of float32
  for (int i = 0; i < kNestingMax; ++i) {
    std::string list;
    put_message(list, 1, value);
    value.clear();
    put_message(value, 51, list);
  }
  EXPECT_TRUE(read_signature(bytes_of(value)).ok());
  std::string list;
  put_message(list, 1, value);
  std::string deeper;
  put_message(deeper, 51, list);
  expect_refused(read_signature(bytes_of(deeper)).status(), StatusCode::kInvalidArgument,
                 {"deeper than 64"});
}

TEST(ReverbSignature, RefusesValuesThatAreNotSpecifications) {
  std::string number;
  put_double(number, 11, 1.5);
  expect_refused(read_signature(bytes_of(number)).status(), StatusCode::kInvalidArgument,
                 {"Saw unsupported encoded subtree in signature"});
  EXPECT_FALSE(read_signature({}).ok());
}

TEST(ReverbSignature, LeavesOfADictAreOrderedByKey) {
  const auto member = [](const std::string& key, int dtype) {
    std::string spec;
    put_int(spec, 3, dtype);
    std::string value;
    put_message(value, 33, spec);
    std::string entry;
    put_text(entry, 1, key);
    put_message(entry, 2, value);
    return entry;
  };
  std::string dict;
  put_message(dict, 1, member("b", 1));
  put_message(dict, 1, member("a", 9));
  put_message(dict, 1, member("b", 3));  // the last of two entries with the same key counts
  std::string value;
  put_message(value, 53, dict);
  const Signature read = read_signature(bytes_of(value)).value();
  ASSERT_EQ(read.columns.size(), 2u);
  EXPECT_EQ(read.columns[0].name, "a");
  EXPECT_EQ(read.columns[0].dtype, DType::kInt64);
  EXPECT_EQ(read.columns[1].dtype, DType::kInt32);
  EXPECT_EQ(read.structure, R"({"dict": [["a", "*"], ["b", "*"]]})");
}

TEST(ReverbSignature, DataclassesBecomeNamedTuples) {
  const std::string written =
      write_signature(
          signature(
              R"({"dataclass": "module:Outer.Point", "fields": [["x", "*"], ["\u00e9", "*"]]})", 2))
          .value();
  const Signature read = read_signature(bytes_of(written)).value();
  EXPECT_EQ(read.structure,
            "{\"namedtuple\": \"Point\", \"fields\": [[\"x\", \"*\"], "
            "[\"\xc3\xa9\", \"*\"]]}");
  EXPECT_EQ(read.columns[0].shape, (Shape{-1, 3}));
}

TEST(ReverbSignature, RefusesNumbersAsKeys) {
  expect_refused(write_signature(signature(R"({"dict": [[3, "*"]]})", 1)).status(),
                 StatusCode::kUnimplemented, {"numbers"});
}

TEST(ReverbSignature, RefusesInvalidStructureTexts) {
  for (const char* text : {"", "{", R"({"dict": [["a", "*"]})", R"({"list": ["*", "*"]})", R"("x")",
                           R"({"heap": []})", R"({"dict": [["\ud800", "*"]]})"}) {
    expect_refused(write_signature(signature(text, 1)).status(), StatusCode::kDataLoss, {});
  }
}

}  // namespace
}  // namespace reverie::wire
