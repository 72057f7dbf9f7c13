#include "reverie/door/first_bytes.h"

#include <gtest/gtest.h>

namespace reverie {
namespace {

const FirstBytes kTwo({{"PRI * HTTP/2.0"}, {"GET ", "HEAD ", "PUT "}});

TEST(FirstBytes, AProtocolIsRecognisedByAnyOfItsPrefixes) {
  EXPECT_EQ(kTwo.find("PRI * HTTP/2.0").protocol, 0u);
  EXPECT_EQ(kTwo.find("PRI * HTTP/2.0\r\n\r\nSM").protocol, 0u);
  EXPECT_EQ(kTwo.find("GET / HTTP/1.1").protocol, 1u);
  EXPECT_EQ(kTwo.find("HEAD ").protocol, 1u);
}

TEST(FirstBytes, AnIncompletePrefixIsUndecided) {
  for (const std::string_view text : {"", "P", "PR", "PU", "GET", "PRI * HTTP/2."}) {
    EXPECT_FALSE(kTwo.find(text).is_known) << text;
    EXPECT_EQ(kTwo.find(text).protocol, std::nullopt);
  }
}

TEST(FirstBytes, OtherBytesAreRecognisedAsNoProtocol) {
  for (const std::string_view text : {"X", "PX", "POST ", "GET\t", "\x16\x03\x01"}) {
    EXPECT_TRUE(kTwo.find(text).is_known) << text;
    EXPECT_EQ(kTwo.find(text).protocol, std::nullopt);
  }
}

}  // namespace
}  // namespace reverie
