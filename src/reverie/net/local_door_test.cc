#include "reverie/net/local_door.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

namespace reverie {
namespace {

SocketAddress address_of(const std::string& text) {
  return resolve(parse_endpoint(text).value()).value().front();
}

std::vector<std::string> doors_to(const std::string& text) {
  std::vector<std::string> names;
  for (const SocketAddress& door : local_doors_to(address_of(text))) {
    names.push_back(door.to_string());
  }
  return names;
}

TEST(LocalDoor, IsNamedAfterTheAddressOfItsServer) {
  EXPECT_EQ(local_door(address_of("127.0.0.1:7000")).to_string(), "unix:@reverie/127.0.0.1:7000");
  EXPECT_EQ(local_door(address_of("[::1]:7000")).to_string(), "unix:@reverie/[::1]:7000");
}

TEST(LocalDoor, OfAServerOnThisMachineIsAtItsAddressOrAtAllOfTheMachines) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(doors_to("127.0.0.1:7000"),
            (Names{"unix:@reverie/127.0.0.1:7000", "unix:@reverie/0.0.0.0:7000"}));
  EXPECT_EQ(doors_to("[::1]:7000"), (Names{"unix:@reverie/[::1]:7000", "unix:@reverie/[::]:7000"}));
}

TEST(LocalDoor, IsNotSoughtForAnotherMachineNorWithoutAPort) {
  EXPECT_TRUE(doors_to("192.0.2.1:7000").empty());  // reserved for documentation (RFC 5737)
  EXPECT_TRUE(doors_to("127.0.0.1:0").empty());
  EXPECT_TRUE(doors_to("unix:@elsewhere").empty());
}

TEST(LocalDoor, KnowsAPeerOfTheSameUser) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  EXPECT_TRUE(is_of_same_user(ends[0]));
  ::close(ends[0]);
  EXPECT_FALSE(is_of_same_user(ends[0])) << "a closed descriptor has no peer";
  ::close(ends[1]);
}

}  // namespace
}  // namespace reverie
