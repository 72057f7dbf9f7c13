#include "reverie/grpc/grpc_wire.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(GrpcWire, PercentEncodedTextSurvivesARoundTrip) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  const std::string encoded = percent_encode(all, 10'000);
  for (const char c : encoded) EXPECT_TRUE(c >= ' ' && c <= '~');
  EXPECT_EQ(percent_decode(encoded), all);
  EXPECT_EQ(percent_encode("a%b\n", 100), "a%25b%0A");
  EXPECT_EQ(percent_encode("", 100), "");
}

TEST(GrpcWire, ALongTextIsCutAtACharacterBoundary) {
  EXPECT_EQ(percent_encode("abcdef", 4), "abcd");
  EXPECT_EQ(percent_encode("aä", 7), "a%C3%A4");
  EXPECT_EQ(percent_encode("aä", 6), "a");
  EXPECT_EQ(percent_encode(std::string(100'000, '\n'), 8000).size(), 7998u);
}

TEST(GrpcWire, InvalidPercentCodesAreKept) {
  for (const std::string text : {"%", "%4", "%zz", "a%"}) EXPECT_EQ(percent_decode(text), text);
  EXPECT_EQ(percent_decode("%41%zz%42"), "A%zzB");
  EXPECT_EQ(percent_decode("%41"), "A");
}

TEST(GrpcWire, TimeoutsAreParsed) {
  EXPECT_EQ(parse_timeout("250m"), std::chrono::milliseconds(250));
  EXPECT_EQ(parse_timeout("1H"), std::chrono::hours(1));
  EXPECT_EQ(parse_timeout("2M"), std::chrono::minutes(2));
  EXPECT_EQ(parse_timeout("3S"), std::chrono::seconds(3));
  EXPECT_EQ(parse_timeout("4u"), std::chrono::microseconds(4));
  EXPECT_EQ(parse_timeout("00000005n"), Duration(5));
  EXPECT_EQ(parse_timeout("99999999H"), Duration::max());
  for (const std::string text : {"", "m", "12", "1x", "-1S", "123456789S", "1 S", "1.5S", "+1S"}) {
    EXPECT_FALSE(parse_timeout(text)) << text;
  }
}

TEST(GrpcWire, ATimeoutIsNeverRoundedDown) {
  EXPECT_EQ(format_timeout(Duration(-5)), "1n");
  EXPECT_EQ(format_timeout(Duration(99'999'999)), "99999999n");
  EXPECT_EQ(format_timeout(Duration(100'000'001)), "100001u");
  for (std::int64_t ns = 1; ns < 4'000'000'000'000'000'000; ns = ns * 3 + 1) {
    const auto read = parse_timeout(format_timeout(Duration(ns)));
    ASSERT_TRUE(read);
    EXPECT_GE(read->count(), ns);
    EXPECT_LE(static_cast<double>(read->count()), static_cast<double>(ns) * 1.0001 + 1);
  }
  EXPECT_TRUE(parse_timeout(format_timeout(Duration::max())));
}

TEST(GrpcWire, UnsupportedStatusesKeepTheirName) {
  EXPECT_TRUE(status_from_wire("0", "ignored").ok());
  EXPECT_EQ(status_from_wire("5", "a%20b").to_string(), "NOT_FOUND: a b");
  EXPECT_EQ(status_from_wire("16", "").code(), StatusCode::kUnauthenticated);
  EXPECT_EQ(status_from_wire("2", "what").to_string(), "INTERNAL: UNKNOWN: what");
  EXPECT_EQ(status_from_wire("2", "Stream removed").code(), StatusCode::kUnavailable);
  EXPECT_EQ(status_from_wire("10", "x").to_string(), "INTERNAL: ABORTED: x");
  for (const std::string number : {"", "x", "-1", "17", "99999999999", "5 "}) {
    EXPECT_EQ(status_from_wire(number, "x").code(), StatusCode::kInternal) << number;
  }
}

TEST(GrpcWire, BinaryMetadataSurvivesARoundTrip) {
  std::string bytes;
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(base64_decode(base64_encode(bytes)), bytes);
    bytes += static_cast<char>(i * 89);
  }
  EXPECT_EQ(base64_encode("Man"), "TWFu");
  EXPECT_EQ(base64_decode("TWE="), "Ma");
  EXPECT_EQ(base64_decode("TQ"), "M");
  for (const std::string text : {"T", "TWFuT", "T*", "a b="}) EXPECT_FALSE(base64_decode(text));
}

}  // namespace
}  // namespace reverie
