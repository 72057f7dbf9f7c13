#include "reverie/rpc/wire_link.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace reverie {
namespace {

// One side of a connection, and what it received. Its owner flushes it when asked to.
struct Side {
  Side(IoLoop& loop, int fd, LinkId id, bool offers_share = true) {
    const sockaddr_un address{AF_UNIX, {}};
    auto connection = make_connection(
        loop, fd, SocketAddress(reinterpret_cast<const sockaddr*>(&address), sizeof(sa_family_t)));
    connection->accept_descriptors();
    events.received = [this](LinkId, std::vector<Frame> frames) {
      std::move(frames.begin(), frames.end(), std::back_inserter(received));
    };
    events.lost = [this](LinkId, const Status& why) {
      lost = why;
      link->end();
    };
    events.writable = [this](LinkId) { link->flush(); };
    events.shared = [this](LinkId, const Frame& frame, int descriptor) {
      return link->on_share_frame(frame, descriptor);
    };
    events.rings = [this](LinkId) { link->ring_doorbell(); };
    events.on_doorbell = [this](LinkId) { ++bells; };
    events.on_return_due = [](LinkId) {};
    link = std::make_shared<WireLink>(id, std::move(connection), nullptr, poller_count, events);
    link->trust();
    link->set_limits(FrameLimits());
    if (offers_share) link->offer_share({id, id});
  }

  ~Side() { link->end(); }

  void send(std::size_t size_bytes) {
    Message message;
    for (std::size_t i = 0; i < size_bytes; ++i) {
      message.payload.head.push_back(static_cast<std::byte>(i * 7 + i / 256));
    }
    link->queue({FrameKind::kCall, 1, 0, 1}, std::make_shared<const Message>(message));
    sent = std::move(message.payload.head);
  }

  // Reads and writes as much as possible without waiting.
  void turn() {
    link->on_readable();
    if (link->is_over()) return;
    link->poll();
    link->flush();
  }

  std::atomic<int> poller_count{0};
  WireLink::Events events;
  std::shared_ptr<WireLink> link;
  std::vector<Frame> received;
  std::vector<std::byte> sent;
  int bells = 0;
  Status lost;
};

// One side uses its ring and fills it, while the other is sending a frame over the socket: the
// doorbell for the room that it made must wait for the end of that frame.
TEST(WireLink, SendsNoDoorbellInTheMiddleOfAFrame) {
  IoThreads threads;
  IoLoop& loop = threads.loop(0);
  loop.run_and_wait([&loop] {
    int fds[2];
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
    Side slow(loop, fds[0], 1);
    Side quick(loop, fds[1], 2);
    slow.link->flush();
    quick.link->flush();
    slow.turn();  // maps the other side's memory
    // Maps the memory and switches to the ring. A read ends after each descriptor.
    for (int i = 0; i < 3; ++i) quick.turn();
    constexpr std::size_t kSizeBytes = 4 * kShareRingBytes;
    slow.send(kSizeBytes);
    ASSERT_FALSE(slow.link->flush()) << "the socket took all of it";
    for (int i = 0; i < 3; ++i) slow.link->on_readable();  // reads the switch
    ASSERT_TRUE(slow.link->has_ring());
    quick.send(kSizeBytes);
    ASSERT_FALSE(quick.link->flush()) << "the ring took all of it";

    for (int i = 0; i < 1000 && (slow.received.empty() || quick.received.empty()); ++i) {
      slow.turn();
      quick.turn();
      ASSERT_TRUE(slow.lost.ok()) << slow.lost.to_string();
      ASSERT_TRUE(quick.lost.ok()) << quick.lost.to_string();
    }
    ASSERT_EQ(slow.received.size(), 1u);
    ASSERT_EQ(quick.received.size(), 1u);
    EXPECT_EQ(slow.received[0].message.payload.head, quick.sent);
    EXPECT_EQ(quick.received[0].message.payload.head, slow.sent);
    EXPECT_GE(quick.bells, 1) << "the ring's writer was never told that there is room";
  });
}

// A tensor of a GPU waits for as long as the host may be proved.
TEST(WireLink, MayProveTheHostUntilASideSharesNoMemory) {
  IoThreads threads;
  IoLoop& loop = threads.loop(0);
  loop.run_and_wait([&loop] {
    int fds[2];
    const auto connect = [&fds] {
      return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds) == 0;
    };
    {
      ASSERT_TRUE(connect());
      Side one(loop, fds[0], 1);
      Side other(loop, fds[1], 2);
      for (const Side* side : {&one, &other}) EXPECT_TRUE(side->link->may_prove_host());
      for (Side* side : {&one, &other}) side->link->flush();
      for (int i = 0; i < 4; ++i) {
        one.turn();
        other.turn();
      }
      for (const Side* side : {&one, &other}) {
        EXPECT_TRUE(side->link->is_host_proved()) << side->link->why();
        EXPECT_FALSE(side->link->may_prove_host());
      }
    }
    {
      ASSERT_TRUE(connect());
      Side offers(loop, fds[0], 1);
      Side refuses(loop, fds[1], 2, /*offers_share=*/false);
      EXPECT_FALSE(refuses.link->may_prove_host());
      offers.link->flush();
      refuses.turn();
      EXPECT_TRUE(offers.link->may_prove_host());
      offers.turn();
      EXPECT_FALSE(offers.link->may_prove_host());
    }
    {
      ASSERT_TRUE(connect());
      Side side(loop, fds[0], 1);
      // The other side's offer brings no memory that could be mapped.
      const auto frame = encode_frame_header({FrameKind::kShare, 0, 0, 1}, {});
      ASSERT_EQ(::send(fds[1], frame.data(), frame.size(), MSG_NOSIGNAL),
                static_cast<ssize_t>(frame.size()));
      EXPECT_TRUE(side.link->may_prove_host());
      side.turn();
      EXPECT_FALSE(side.link->may_prove_host());
      ::close(fds[1]);
    }
  });
}

// Each of its frames is answered, and it reads none of the answers.
TEST(WireLink, LosesAConnectionWhoseOtherSideSendsAndDoesNotRead) {
  IoThreads threads;
  IoLoop& loop = threads.loop(0);
  int fds[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds), 0);
  std::unique_ptr<Side> side;
  loop.run_and_wait([&] {
    side = std::make_unique<Side>(loop, fds[0], 1);
    side->link->flush();
  });
  // Offers of shared memory that bring none.
  const auto frame = encode_frame_header({FrameKind::kShare, 0, 0, 1}, {});
  std::vector<std::byte> frames;
  for (int i = 0; i < 100'000; ++i) frames.insert(frames.end(), frame.begin(), frame.end());
  std::span<const std::byte> left = frames;
  while (!left.empty() && !side->link->is_over()) {
    const ssize_t sent = ::send(fds[1], left.data(), left.size(), MSG_NOSIGNAL);
    if (sent > 0) left = left.subspan(static_cast<std::size_t>(sent));
    loop.run_and_wait([&] {
      if (!side->link->is_over()) side->turn();
    });
  }
  loop.run_and_wait([] {});  // what was posted before has run
  EXPECT_EQ(side->lost.code(), StatusCode::kResourceExhausted) << side->lost.to_string();
  loop.run_and_wait([&] { side.reset(); });
  ::close(fds[1]);
}

}  // namespace
}  // namespace reverie
