#include "reverie/adapters/peer/store_link.h"

#include <atomic>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/adapters/peer/link_loops.h"
#include "reverie/net/connection.h"
#include "reverie/net/io_threads.h"
#include "reverie/store_messages/store_wire.h"
#include "tests/support/eventually.h"

namespace reverie {
namespace {

using test::eventually;

struct CountedEvents final : StoreLinkEvents {
  void on_frames(std::vector<Frame> frames) override {
    frame_count += frames.size();
    const Frame& last = frames.back();
    if (last.header.kind == FrameKind::kRefused) {
      refused_with = store_wire::read_status(last.message.payload).code();
    }
  }
  void on_lost(const Status& why) override { lost_with = why.code(); }
  void on_room() override { ++room_count; }
  std::shared_ptr<const Message> refusal(const Status& why) override {
    return store_wire::message_of(store_wire::write_status(why));
  }
  std::atomic<std::size_t> frame_count{0};
  std::atomic<int> room_count{0};
  std::atomic<StatusCode> refused_with{StatusCode::kOk};
  std::atomic<StatusCode> lost_with{StatusCode::kOk};
};

// One end of a link, with a loop of its own.
struct LinkEnd {
  void open(std::unique_ptr<Connection> connection, const FrameLimits& limits = {}) {
    loop().run_and_wait([&] {
      ASSERT_TRUE(connection->accept_descriptors());
      link = StoreLink::make(loops, std::move(connection), events, limits);
      link->trust();
      link->start({});
    });
  }
  ~LinkEnd() {
    if (link) link->hang_up();
  }

  IoLoop& loop() { return threads.loop(0); }
  void send(std::size_t size_bytes) {
    Payload payload;
    payload.head.resize(size_bytes);
    link->send({FrameKind::kCall, 0, 0, 0}, store_wire::message_of(std::move(payload)));
    ++sent_count;
  }
  // Keeps the loop's thread busy until `ends`.
  void block(const std::atomic<bool>& ends) {
    std::atomic<bool> is_busy{false};
    loop().post([&] {
      is_busy = true;
      (void)eventually([&] { return ends.load(); });
    });
    ASSERT_TRUE(eventually([&] { return is_busy.load(); }));
  }

  IoThreads threads{1};
  LinkLoops loops{threads};
  const std::shared_ptr<CountedEvents> events = std::make_shared<CountedEvents>();
  std::shared_ptr<StoreLink> link;
  std::size_t sent_count = 0;
};

// Each end shares its memory before it reads of the other's.
void share_memory(LinkEnd& writer, LinkEnd& reader) {
  std::atomic<bool> have_offered{false};
  writer.block(have_offered);
  reader.block(have_offered);
  writer.send(1);
  reader.send(1);
  have_offered = true;
  ASSERT_TRUE(eventually([&] {
    return writer.link->transport() == "shared memory" &&
           reader.link->transport() == "shared memory";
  }));
}

// Through the socket, and through shared memory.
TEST(StoreLink, TellsTheOtherSideThatItsFrameIsTooLarge) {
  for (const bool is_shared : {false, true}) {
    LinkEnd writer;
    LinkEnd reader;
    ConnectionPair pair = make_connection_pair(writer.loop(), reader.loop()).value();
    writer.open(std::move(pair.first));
    reader.open(std::move(pair.second), {.head_bytes_max = 1000});
    if (is_shared) share_memory(writer, reader);
    writer.send(std::size_t{8} << 20);
    EXPECT_TRUE(
        eventually([&] { return reader.events->lost_with == StatusCode::kResourceExhausted; }));
    EXPECT_TRUE(eventually([&] { return writer.events->lost_with == StatusCode::kUnavailable; }));
    EXPECT_EQ(writer.events->refused_with, StatusCode::kResourceExhausted);
    EXPECT_EQ(reader.events->refused_with, StatusCode::kOk);
  }
}

// What waited for room in the ring is written by a thread that sends a further frame, while the
// loop's thread does something else: then the ring has no more to report.
TEST(StoreLink, ReportsRoomThatAnotherThreadMakesBySending) {
  LinkEnd writer;
  LinkEnd reader;
  ConnectionPair pair = make_connection_pair(writer.loop(), reader.loop()).value();
  writer.open(std::move(pair.first));
  reader.open(std::move(pair.second));
  share_memory(writer, reader);
  writer.send(1);
  reader.send(1);
  ASSERT_TRUE(eventually(
      [&] { return writer.events->frame_count == 2 && reader.events->frame_count == 2; }));

  std::atomic<bool> writer_goes_on{false};
  std::atomic<bool> reader_goes_on{false};
  writer.block(writer_goes_on);
  reader.block(reader_goes_on);
  while (writer.link->has_room()) writer.send(std::size_t{1} << 20);
  reader_goes_on = true;
  EXPECT_TRUE(eventually([&] {
    if (reader.events->frame_count == writer.sent_count) return true;
    writer.send(1);
    return false;
  }));
  EXPECT_TRUE(writer.link->has_room());
  EXPECT_EQ(writer.events->room_count, 0);
  writer_goes_on = true;
  EXPECT_TRUE(eventually([&] { return writer.events->room_count > 0; }));
}

}  // namespace
}  // namespace reverie
