// Replays runs of the models in docs/models on the code that they model: the code must do what the
// model did, event by event. tests/data/make_model_traces.py made the runs.
#include <array>
#include <cstdint>
#include <deque>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/random.h"
#include "reverie/native_wire/insert_session.h"
#include "reverie/native_wire/insert_window.h"
#include "reverie/rpc/peer_core.h"
#include "tests/support/fake_grpc_call.h"
#include "tests/support/items.h"
#include "tests/support/number_values.h"
#include "tests/tests_dir.h"

namespace reverie {
namespace {

// A line of a run, such as "take 0 1 3 2 0".
struct Event {
  std::string what;
  std::vector<std::string> arguments;
  std::string line;

  std::size_t number(std::size_t index) const { return std::stoul(arguments.at(index)); }
};

struct Trace {
  std::string name;
  std::vector<Event> events;
};

std::vector<Trace> runs_of(const std::string& model) {
  std::ifstream file(std::string(REVERIE_TESTS_DIR) + "/data/models/" + model + ".txt");
  std::vector<Trace> runs;
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    Event event;
    event.line = line;
    words >> event.what;
    for (std::string word; words >> word;) event.arguments.push_back(word);
    if (event.what == "seed") {
      runs.push_back({line, {}});
    } else {
      runs.back().events.push_back(std::move(event));
    }
  }
  return runs;
}

// --- insert_once.pml

constexpr std::size_t kWriters = 2;
constexpr std::size_t kItems = 3;
constexpr std::size_t kStreams = 4;  // writer w has the streams 2w and 2w + 1

// Two writers' windows, and their sessions with one server.
class InsertReplay {
 public:
  InsertReplay() {
    for (InsertWindow& window : windows_) {
      for (std::uint64_t number = 1; number <= kItems; ++number) {
        Item item = testing::make_item(number, 1.0);
        window.add({&item, 1}, TimePoint::max(), [](const InsertResult&) {});
      }
    }
    restart();
  }

  void apply(const Event& event) {
    SCOPED_TRACE(event.line);
    if (event.what == "restart") return restart();
    const std::size_t writer = event.number(0);
    InsertWindow& window = windows_.at(writer);
    InsertWindow::Outcome outcome;
    if (event.what == "confirmed") {
      window.confirm(event.number(1), 1, outcome);
      return;
    }
    if (event.what == "give_up") {
      InsertWindow::Request* const request = window.find(event.number(1));
      ASSERT_NE(request, nullptr) << "the code has settled it";
      window.give_up(*request, cancelled("given up"), outcome);
      return;
    }
    const std::size_t stream = event.number(1);
    Stream& at = streams_.at(stream);
    InsertSession& session = *sessions_.at(writer);
    if (event.what == "begin") {
      at = {};
      at.ordinal = event.number(2);
      window.restart();
    } else if (event.what == "send") {
      ASSERT_TRUE(window.has_waiting());
      const InsertWindow::Batch batch = window.take(1, SIZE_MAX);
      ASSERT_EQ(batch.items.size(), 1u);
      EXPECT_EQ(batch.first, event.number(2));
      at.sent.emplace_back(batch.first, window.base());
    } else if (event.what == "attach") {
      EXPECT_TRUE(session.attach(at.call, at.ordinal));
      at.is_attached = true;
      EXPECT_EQ(at.ordinal, event.number(2));
    } else if (event.what == "refuse") {
      EXPECT_FALSE(session.attach(at.call, at.ordinal));
    } else if (event.what == "turn") {
      turn_.at(writer) = stream;
    } else if (event.what == "take") {
      take(event, at, session);
    } else if (event.what == "admit") {
      const std::uint64_t number = event.number(2);
      EXPECT_EQ(++inserted_[std::pair(writer, number)], 1);
      EXPECT_GT(number, std::exchange(last_.at(writer), number)) << "the writer's order";
      session.note_done(number, true);
    } else if (event.what == "take_back") {
      session.note_done(event.number(2), false);
    } else if (event.what == "end") {
      if (turn_.at(writer) == stream) turn_.at(writer) = kStreams;
      session.leave(at.call);
      at = {};
    } else {
      // The other side does not notice that a stream was dropped, cut or lost.
      ASSERT_TRUE(std::set<std::string>({"drop", "cut", "lost"}).contains(event.what));
    }
  }

  // Checks that the code reads the same stream as the model.
  void check(const Event& event) {
    SCOPED_TRACE(event.line);
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const Stream& at = streams_[stream];
      if (!at.is_attached || at.call->is_over()) continue;
      EXPECT_EQ(!at.call->is_paused(), turn_.at(stream / 2) == stream) << "stream " << stream;
    }
  }

 private:
  struct Stream {
    std::shared_ptr<FakeServerCall> call = std::make_shared<FakeServerCall>();
    std::uint64_t ordinal = 0;
    bool is_attached = false;
    // What the writer sent: a number, and the number below which everything is settled.
    std::deque<std::pair<std::uint64_t, std::uint64_t>> sent;
  };

  void take(const Event& event, Stream& at, InsertSession& session) {
    ASSERT_FALSE(at.call->is_paused());
    ASSERT_FALSE(at.sent.empty());
    const auto [number, settled] = at.sent.front();
    at.sent.pop_front();
    EXPECT_EQ(number, event.number(2));
    EXPECT_EQ(settled, event.number(3));
    session.settle(settled);
    EXPECT_EQ(session.begin(number), event.number(4) == 1) << "whether it is in";
  }

  void restart() {
    for (auto& session : sessions_) session = std::make_unique<InsertSession>();
    streams_ = {};
    turn_.fill(kStreams);
    inserted_.clear();
    last_.fill(0);
  }

  std::array<InsertWindow, kWriters> windows_;
  std::array<std::unique_ptr<InsertSession>, kWriters> sessions_;
  std::array<Stream, kStreams> streams_;
  std::array<std::size_t, kWriters> turn_{};  // the stream that the model reads
  std::map<std::pair<std::size_t, std::uint64_t>, int> inserted_;
  std::array<std::uint64_t, kWriters> last_{};
};

TEST(ModelTraces, OfInsertsOnceAreReproducedByTheCode) {
  const std::vector<Trace> runs = runs_of("insert_once");
  ASSERT_EQ(runs.size(), 60u);
  for (const Trace& run : runs) {
    SCOPED_TRACE(run.name);
    InsertReplay replay;
    for (std::size_t i = 0; i < run.events.size(); ++i) {
      replay.apply(run.events[i]);
      // The model prints a turn after the event that caused it.
      const bool is_turn_next = i + 1 < run.events.size() && run.events[i + 1].what == "turn";
      if (!is_turn_next) replay.check(run.events[i]);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

// --- at_most_once.pml

constexpr std::size_t kClients = 2;
constexpr std::size_t kCalls = 3;
// Clocks only advance when the model decides that a connection is silent.
constexpr Duration kDeadAfter = std::chrono::hours(1);

// A peer with its own clock that only sends when it is told to.
class TracedPeer final : public PeerEffects {
 public:
  TracedPeer(const std::string& name, std::uint64_t run) {
    PeerOptions options;
    options.name = name;
    options.run = {1, run};
    options.dead_after = kDeadAfter;
    options.random = [random = std::make_shared<Random>(run)] { return random->next(); };
    core = std::make_unique<PeerCore>(std::move(options), *this);
  }

  void dial(LinkId link, const std::string&) override { dialled = link; }
  void send(LinkId link, const FrameHeader& header,
            std::shared_ptr<const Message> message) override {
    Frame frame;
    frame.header = header;
    frame.message = *message;
    sent[link].push_back(std::move(frame));
  }
  void hang_up(LinkId link) override { hung_up.insert(link); }
  void trust(LinkId, const std::string&) override {}
  void deliver(Request request) override { requests.push_back(std::move(request)); }
  void withdraw(InboundId) override {}
  void complete(CallId call, CallResult result) override {
    results.emplace(call, std::move(result));
  }
  std::function<void()> on_receipt(InboundId, FrameKind) override { return {}; }

  std::unique_ptr<PeerCore> core;
  TimePoint now{};
  LinkId dialled = 0;  // an attempt without an outcome
  std::map<LinkId, std::deque<Frame>> sent;
  std::set<LinkId> hung_up;
  std::vector<Request> requests;
  std::map<CallId, CallResult> results;
};

class CallReplay {
 public:
  CallReplay() {
    start_server();
    for (std::size_t c = 0; c < kClients; ++c) {
      clients_.push_back(std::make_unique<TracedPeer>("c" + std::to_string(c), 100 + c));
      clients_[c]->core->connect("server:1", {});
    }
  }

  void apply(const Event& event) {
    SCOPED_TRACE(event.line);
    if (event.what == "restart") {
      for (std::size_t c = 0; c < kClients; ++c) cut(c);
      return start_server();
    }
    const std::size_t c = event.number(0);
    if (event.what == "dial") {
      dial(c);
    } else if (event.what == "resume") {
      to_server(c, FrameKind::kResume);
    } else if (event.what == "open") {
      to_client(c, FrameKind::kResumed);
    } else if (event.what == "call") {
      call(c, event.number(1));
    } else if (event.what == "run") {
      run(c, event.number(1));
    } else if (event.what == "answered") {
      to_client(c, FrameKind::kAnswer);
      expect_result(c, event.number(1), CallResult::Kind::kAnswer);
    } else if (event.what == "cut") {
      cut(c);
    } else if (event.what == "silence") {
      silence(c);
    } else {
      ASSERT_EQ(event.what, "end");
      if (event.arguments[2] == "ANSWERED") {
        expect_result(c, event.number(1), CallResult::Kind::kAnswer);
      } else {
        // The call was sent, and whether it ran is unknown.
        ASSERT_TRUE(calls_.contains(event.number(1)));
        const auto place = clients_[c]->results.find(calls_.at(event.number(1)));
        ASSERT_NE(place, clients_[c]->results.end()) << "the call has not ended";
        EXPECT_NE(place->second.kind, CallResult::Kind::kAnswer);
      }
    }
  }

 private:
  struct Link {
    LinkId ours = 0;  // the client's link, or 0
    LinkId theirs = 0;
  };

  void start_server() {
    server_ = std::make_unique<TracedPeer>("server", ++runs_);
    EXPECT_TRUE(server_->core->define("f").ok());
  }

  void tick(TracedPeer& peer, Duration after) {
    peer.now = peer.now + after;
    peer.core->tick(peer.now);
  }

  void dial(std::size_t c) {
    TracedPeer& client = *clients_[c];
    // The pauses between attempts are far shorter than kDeadAfter.
    for (int i = 0; i < 100 && client.dialled == 0; ++i) tick(client, std::chrono::seconds(1));
    ASSERT_NE(client.dialled, 0u);
    Link& link = links_[c];
    ASSERT_EQ(link.ours, 0u);
    link.ours = std::exchange(client.dialled, 0);
    link.theirs = server_->core->accepted("c" + std::to_string(c), server_->now);
    client.core->link_up(link.ours, "server", client.now);
    to_server(c, FrameKind::kHello);
    to_client(c, FrameKind::kWelcome);
  }

  // Delivers frames until one of that kind was delivered.
  void to_server(std::size_t c, FrameKind kind) {
    hand_on(*clients_[c], links_[c].ours, *server_, links_[c].theirs, kind);
  }
  void to_client(std::size_t c, FrameKind kind) {
    hand_on(*server_, links_[c].theirs, *clients_[c], links_[c].ours, kind);
  }
  void hand_on(TracedPeer& from, LinkId out, TracedPeer& to, LinkId in, FrameKind kind) {
    ASSERT_NE(in, 0u);
    std::deque<Frame>& frames = from.sent[out];
    while (!frames.empty()) {
      Frame frame = std::move(frames.front());
      frames.pop_front();
      const FrameKind came = frame.header.kind;
      to.core->received(in, std::move(frame), to.now);
      ASSERT_FALSE(to.hung_up.contains(in)) << "the code ended a link that the model keeps";
      if (came == kind) return;
    }
    FAIL() << "no frame of kind " << static_cast<int>(kind) << " was sent";
  }

  // Makes the call once; later the session resends it.
  void call(std::size_t c, std::size_t number) {
    if (calls_.contains(number)) return;
    const auto id = clients_[c]->core->call(
        "server", "f", number_payload(static_cast<std::int64_t>(number)), {}, clients_[c]->now);
    ASSERT_TRUE(id.ok()) << id.status().to_string();
    calls_[number] = *id;
  }

  void run(std::size_t c, std::size_t number) {
    to_server(c, FrameKind::kCall);
    ASSERT_EQ(server_->requests.size(), 1u);
    const Request request = std::move(server_->requests.front());
    server_->requests.clear();
    EXPECT_EQ(number_of(request.message.payload), static_cast<std::int64_t>(number));
    EXPECT_EQ(++executed_[number], 1);
    server_->core->answer(request.id, number_payload(static_cast<std::int64_t>(number)),
                          server_->now);
  }

  void expect_result(std::size_t c, std::size_t number, CallResult::Kind kind) {
    ASSERT_TRUE(calls_.contains(number));
    const auto place = clients_[c]->results.find(calls_.at(number));
    ASSERT_NE(place, clients_[c]->results.end()) << "the call has not ended";
    EXPECT_EQ(place->second.kind, kind) << place->second.status.to_string();
    if (kind == CallResult::Kind::kAnswer) {
      EXPECT_EQ(number_of(place->second.payload), static_cast<std::int64_t>(number));
    }
  }

  void cut(std::size_t c) {
    const Link link = std::exchange(links_[c], {});
    if (link.ours == 0) return;
    clients_[c]->sent.erase(link.ours);
    server_->sent.erase(link.theirs);
    clients_[c]->core->link_down(link.ours, unavailable("cut"), clients_[c]->now);
    server_->core->link_down(link.theirs, unavailable("cut"), server_->now);
  }

  void silence(std::size_t c) {
    tick(*clients_[c], 2 * kDeadAfter);
    // Attempts to connect meanwhile fail.
    if (const LinkId dialled = std::exchange(clients_[c]->dialled, 0); dialled != 0) {
      clients_[c]->core->link_down(dialled, unavailable("no answer"), clients_[c]->now);
    }
    cut(c);
  }

  std::uint64_t runs_ = 0;
  std::unique_ptr<TracedPeer> server_;
  std::vector<std::unique_ptr<TracedPeer>> clients_;
  std::array<Link, kClients> links_{};
  std::map<std::size_t, CallId> calls_;
  std::map<std::size_t, int> executed_;
};

TEST(ModelTraces, OfCallsAtMostOnceAreReproducedByTheCode) {
  const std::vector<Trace> runs = runs_of("at_most_once");
  ASSERT_EQ(runs.size(), 60u);
  for (const Trace& run : runs) {
    SCOPED_TRACE(run.name);
    CallReplay replay;
    for (const Event& event : run.events) {
      replay.apply(event);
      if (::testing::Test::HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace reverie
