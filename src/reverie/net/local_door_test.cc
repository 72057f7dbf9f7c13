#include "reverie/net/local_door.h"

#include <future>
#include <string>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include "reverie/net/connection.h"
#include "reverie/net/io_threads.h"
#include "reverie/net/listener.h"

namespace reverie {
namespace {

SocketAddress one_address(const std::string& text) {
  return resolve(parse_endpoint(text).value(), false)->front();
}

std::unique_ptr<Listener> listen_at(IoThreads& threads, const SocketAddress& address) {
  return Listener::open(threads.loop(0), address,
                        [](int socket, const SocketAddress&) { ::close(socket); })
      .value();
}

// The peer's name that a connection to `address` reports.
std::string peer_of(IoThreads& threads, const std::string& address, bool uses_local_door) {
  std::promise<std::string> peer;
  IoLoop& loop = threads.loop(0);
  ConnectHandle handle;
  loop.run_and_wait([&] {
    handle = connect(
        loop, parse_endpoint(address).value(), nullptr, {}, std::chrono::seconds(10),
        [&peer](Result<std::unique_ptr<Connection>> made) {
          peer.set_value(made.ok() ? (*made)->peer() : made.status().to_string());
        },
        uses_local_door);
  });
  std::string found = peer.get_future().get();
  loop.run_and_wait([&] { handle.reset(); });
  return found;
}

TEST(LocalDoor, IsNamedAfterItsAddress) {
  EXPECT_EQ(local_door(one_address("127.0.0.1:7000")).to_string(), "unix:@reverie/127.0.0.1:7000");
  EXPECT_EQ(local_door(one_address("[::1]:7000")).to_string(), "unix:@reverie/[::1]:7000");
}

TEST(LocalDoor, MayBeTheOneForAllAddressesOfTheMachine) {
  const auto doors = local_doors_to(one_address("127.0.0.1:7000"));
  ASSERT_EQ(doors.size(), 2u);
  EXPECT_EQ(doors[0].to_string(), "unix:@reverie/127.0.0.1:7000");
  EXPECT_EQ(doors[1].to_string(), "unix:@reverie/0.0.0.0:7000");
  EXPECT_EQ(local_doors_to(one_address("[::1]:7000")).at(1).to_string(), "unix:@reverie/[::]:7000");
}

TEST(LocalDoor, IsNotUsedForOtherMachines) {
  EXPECT_TRUE(local_doors_to(one_address("192.0.2.1:7000")).empty());  // a documentation address
  EXPECT_TRUE(local_doors_to(one_address("unix:@x")).empty());
}

TEST(LocalDoor, IsUsedIfThereIsOne) {
  IoThreads threads(1);
  const auto listener = listen_at(threads, one_address("127.0.0.1:0"));
  const std::string address = listener->address().to_string();
  EXPECT_EQ(peer_of(threads, address, true), address) << "there is no door yet";
  auto door = listen_at(threads, local_door(listener->address()));
  EXPECT_EQ(peer_of(threads, address, true), "unix:@reverie/" + address);
  EXPECT_EQ(peer_of(threads, address, false), address) << "who is not to use it does not";
  door.reset();
  EXPECT_EQ(peer_of(threads, address, true), address) << "the door is gone with its listener";
}

TEST(LocalDoor, KnowsTheUserAtTheOtherEnd) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_TRUE(is_of_same_user(ends[0]));
  ::close(ends[0]);
  ::close(ends[1]);
  const int tcp = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_FALSE(is_of_same_user(tcp));
  ::close(tcp);
}

}  // namespace
}  // namespace reverie
