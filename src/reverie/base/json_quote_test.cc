#include "reverie/base/json_quote.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(JsonQuote, EscapesCharactersThatJsonStringsMayNotContain) {
  EXPECT_EQ(json_quote(""), R"("")");
  EXPECT_EQ(json_quote("obs/position"), R"("obs/position")");
  EXPECT_EQ(json_quote("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(json_quote("line\nend\x1f"), R"("line\u000aend\u001f")");
  EXPECT_EQ(json_quote("\xc3\xa4"), "\"\xc3\xa4\"") << "UTF-8 is kept";
}

}  // namespace
}  // namespace reverie
