#include "reverie/messages/message_fields.h"

#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

enum class Colour : std::uint8_t { kRed = 0, kBlue = 3 };

struct Entry {
  std::string name;
  std::int32_t place = 0;
};

struct Everything {
  std::uint64_t large = 0;
  std::int64_t negative = 0;
  std::uint8_t small = 0;
  Colour colour = Colour::kRed;
  double real = 0;
  bool flag = false;
  std::string text;
  std::vector<std::string> texts;
  std::vector<std::uint32_t> array;
  Status status;
  std::vector<Entry> entries;
  std::optional<std::int64_t> there;
  std::optional<std::int64_t> absent;
};

constexpr auto kEntryFields = [](auto& fields, auto& entry) {
  fields.text(entry.name);
  fields.number(entry.place);
};

constexpr auto kEverythingFields = [](auto& fields, auto& all) {
  const auto number = [](auto& inner, auto& value) { inner.number(value); };
  fields.number(all.large);
  fields.number(all.negative);
  fields.number(all.small);
  fields.number(all.colour, 3);
  fields.real(all.real);
  fields.flag(all.flag);
  fields.text(all.text, 8);
  fields.texts(all.texts, 2, 8);
  fields.array(all.array);
  fields.status(all.status);
  fields.entries(all.entries, kEntryFields);
  fields.optional(all.there, number);
  fields.optional(all.absent, number);
};

Everything everything() {
  Everything all;
  all.large = ~std::uint64_t{0};
  all.negative = -7;
  all.small = 255;
  all.colour = Colour::kBlue;
  all.real = 0.25;
  all.flag = true;
  all.text = "a text";
  all.texts = {"one", "two"};
  all.array = {1, 2, 3};
  all.status = not_found("table 'x' does not exist");
  all.entries = {{"first", -1}, {"second", 2}};
  all.there = 5;
  return all;
}

Result<Everything> read(const Payload& payload) {
  return read_fields<Everything>(payload, "a test", kEverythingFields);
}

TEST(MessageFields, AMessageSurvivesARoundTrip) {
  const Everything all = everything();
  const Everything got = read(write_fields(all, kEverythingFields)).value();
  EXPECT_EQ(got.large, all.large);
  EXPECT_EQ(got.negative, -7);
  EXPECT_EQ(got.small, 255);
  EXPECT_EQ(got.colour, Colour::kBlue);
  EXPECT_EQ(got.real, 0.25);
  EXPECT_TRUE(got.flag);
  EXPECT_EQ(got.text, "a text");
  EXPECT_EQ(got.texts, all.texts);
  EXPECT_EQ(got.array, all.array);
  EXPECT_EQ(got.status, all.status);
  ASSERT_EQ(got.entries.size(), 2u);
  EXPECT_EQ(got.entries[1].name, "second");
  EXPECT_EQ(got.entries[0].place, -1);
  EXPECT_EQ(got.there, 5);
  EXPECT_FALSE(got.absent);
}

TEST(MessageFields, TruncatedAndOverlongMessagesAreRefused) {
  const Payload whole = write_fields(everything(), kEverythingFields);
  for (std::size_t size = 0; size < whole.head.size(); ++size) {
    Payload part;
    part.head.assign(whole.head.begin(), whole.head.begin() + static_cast<std::ptrdiff_t>(size));
    EXPECT_EQ(read(part).status().code(), StatusCode::kDataLoss) << size;
  }
  Payload longer;
  longer.head = whole.head;
  longer.head.push_back(std::byte{0});
  EXPECT_EQ(read(longer).status().code(), StatusCode::kDataLoss);
}

// The status of reading one number with an upper bound of 9.
template <typename T>
Status refusal(const Payload& payload) {
  return read_fields<T>(payload, "a test",
                        [](auto& fields, auto& value) { fields.number(value, 9); })
      .status();
}

TEST(MessageFields, ANumberBeyondItsBoundOrItsTypeIsRefusedWithItsValue) {
  const auto written = [](std::int64_t value) {
    return write_fields(value, [](auto& fields, auto& number) { fields.number(number); });
  };
  EXPECT_TRUE(refusal<int>(written(9)).ok());
  const Status beyond = refusal<int>(written(10));
  EXPECT_EQ(beyond.code(), StatusCode::kDataLoss);
  EXPECT_NE(beyond.message().find("10"), std::string::npos) << beyond.message();
  const auto narrow = [&](std::int64_t value) {
    return read_fields<std::uint8_t>(written(value), "a test",
                                     [](auto& fields, auto& number) { fields.number(number); })
        .status()
        .code();
  };
  EXPECT_EQ(narrow(255), StatusCode::kOk);
  EXPECT_EQ(narrow(256), StatusCode::kDataLoss);
  EXPECT_EQ(narrow(-1), StatusCode::kDataLoss);
}

TEST(MessageFields, BoundsOfTextsAndListsAreEnforced) {
  Everything all = everything();
  all.texts.push_back("three");
  EXPECT_EQ(read(write_fields(all, kEverythingFields)).status().code(), StatusCode::kDataLoss);
  all = everything();
  all.text = "a text that is longer";
  EXPECT_EQ(read(write_fields(all, kEverythingFields)).value().text, "a text t");
}

TEST(MessageFields, AnInvalidStatusCodeIsRefused) {
  for (const std::int64_t code : {2, 10, 17, -1}) {
    Payload payload;
    FieldsOut out(payload);
    out.number(code);
    out.text("why");
    out.finish();
    FieldsIn in(payload, "a test");
    Status status;
    in.status(status);
    EXPECT_EQ(in.finish().code(), StatusCode::kDataLoss) << code;
  }
}

}  // namespace
}  // namespace reverie
