#include "reverie/door/token.h"

#include <string>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(Token, IsPrintableTextWithoutSurroundingSpaces) {
  for (const char* const good : {"", "secret", "a b", "!#$%&'*+-.^_`|~", "eyJhbGciOi.J9"}) {
    EXPECT_TRUE(check_token(good).ok()) << good;
  }
  EXPECT_TRUE(check_token(std::string(kTokenBytesMax, 'x')).ok());
  for (const std::string& bad : {std::string(" "), std::string("a\nb"), std::string(" a"),
                                 std::string("a "), std::string("a\tb"), std::string("a\0b", 3),
                                 std::string("gr\xc3\xbc"), std::string(kTokenBytesMax + 1, 'x')}) {
    const Status status = check_token(bad);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << bad;
    EXPECT_NE(status.message().find("printable ASCII"), std::string::npos) << status.message();
    EXPECT_EQ(status.message().find("gr"), std::string::npos) << "the secret stays secret";
  }
}

}  // namespace
}  // namespace reverie
