#include "reverie/service/served_checkpoints.h"

#include <string>

#include <gtest/gtest.h>

namespace reverie {
namespace {

TEST(ServedCheckpoints, AnOversizedPayloadIsRefusedWithItsSizeAndTheBound) {
  EXPECT_TRUE(check_user_payload(kUserPayloadBytesMax).ok());
  const Status status = check_user_payload(kUserPayloadBytesMax + 1);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("16777217 bytes"), std::string::npos);
  EXPECT_NE(status.message().find("16777216"), std::string::npos);
}

TEST(ServedCheckpoints, AnOversizedPayloadOfALoadedCheckpointIsNotSent) {
  ServedCheckpoints checkpoints;
  EXPECT_EQ(served_origin(checkpoints).value(), StoreOrigin());
  checkpoints.origin = [] { return StoreOrigin{"/kept", std::string(100, 'x')}; };
  EXPECT_EQ(served_origin(checkpoints).value().payload.size(), 100u);
  checkpoints.origin = [] {
    return StoreOrigin{"/kept", std::string(kUserPayloadBytesMax + 1, 'x')};
  };
  const Result<StoreOrigin> origin = served_origin(checkpoints);
  EXPECT_EQ(origin.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(origin.status().message().find("/kept"), std::string::npos);
}

}  // namespace
}  // namespace reverie
