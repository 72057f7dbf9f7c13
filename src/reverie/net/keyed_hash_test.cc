#include "reverie/net/keyed_hash.h"

#include <string>

#include <gtest/gtest.h>

#include "reverie/base/format.h"

namespace reverie {
namespace {

std::string hex_of(const KeyedHash& hash) {
  std::string text;
  for (const std::byte b : hash) text += format("{:02x}", static_cast<unsigned>(b));
  return text;
}

// RFC 4231, test cases 1, 2 and 6.
TEST(KeyedHash, MatchesTheHashesOfTheStandard) {
  const auto hash = [](const std::string& key, const std::string& text) {
    return hex_of(keyed_hash(key, std::as_bytes(std::span(text))));
  };
  EXPECT_EQ(hash(std::string(20, '\x0b'), "Hi There"),
            "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
  EXPECT_EQ(hash("Jefe", "what do ya want for nothing?"),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
  EXPECT_EQ(
      hash(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First"),
      "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(KeyedHash, ComparisonCoversAllBytes) {
  const KeyedHash a = keyed_hash("key", {});
  KeyedHash b = a;
  EXPECT_TRUE(is_equal_in_constant_time(a, b));
  b.back() ^= std::byte{1};
  EXPECT_FALSE(is_equal_in_constant_time(a, b));
  EXPECT_FALSE(is_equal_in_constant_time(a, std::span(a).first(31)));
}

}  // namespace
}  // namespace reverie
