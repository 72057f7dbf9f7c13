#include "reverie/calls/device_tensors.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/base/waiting.h"
#include "reverie/os/byte_ring.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"
#include "tests/support/eventually.h"
#include "tests/support/fake_device_driver.h"
#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

using test::eventually;

constexpr Duration kPatience = std::chrono::seconds(30);
constexpr std::size_t kTensorBytes = 4096;
// For memory that is not found through a peer.
constexpr std::uint64_t kNoSession = 0;

TimePoint soon() {
  return Clock::system().now() + kPatience;
}

ProcessId process(std::uint8_t number) {
  return {std::byte{number}};
}

// A peer that acts as process `number`, with a device. 0: as the process that it is in.
struct Side {
  Side(const std::string& name, std::uint8_t number, DeviceTensors::Options options = {},
       bool uses_unix = true, std::uint64_t device = 1,
       Duration dead_after = Peer::Options().dead_after)
      : driver(device) {
    Peer::Options peer_options;
    peer_options.name = name;
    peer_options.uses_unix = uses_unix;
    peer_options.dead_after = dead_after;
    peer = std::shared_ptr<Peer>(Peer::make(peer_options).value());
    options.driver = &driver;
    if (number != 0) options.process = process(number);
    devices = DeviceTensors::make(peer, options);
  }
  ~Side() { close(); }
  void close() const {
    peer->close();
    devices->close();
  }

  // A tensor of the device, all of whose bytes are `value`.
  std::span<std::byte> tensor(std::uint8_t value, std::size_t size_bytes = kTensorBytes) {
    const std::span<std::byte> made = driver.allocate(size_bytes);
    std::ranges::fill(made, std::byte{value});
    return made;
  }

  bool can_lend_to(const std::string& name) const {
    EXPECT_TRUE(eventually([&] { return peer->neighbour(name).session != 0; }));
    return devices->can_lend(peer->neighbour(name), 0, soon());
  }

  // A message with the tensor, which `kept` keeps.
  Payload message(std::span<const std::byte> tensor, const std::string& to,
                  std::shared_ptr<const void> kept = nullptr) const {
    const std::uint64_t session = peer->neighbour(to).session;
    const DeviceTensors::Loan loan =
        devices->lend(session, 0, FakeDeviceDriver::address(tensor), tensor.size()).value();
    Payload payload;
    const std::int64_t shape[] = {static_cast<std::int64_t>(tensor.size())};
    ValueWriter(payload).device_tensor(DType::kUInt8, shape, TensorMaker::kTorch, loan.record);
    payload.lent = std::make_shared<Lent>();
    payload.lent->session = session;
    payload.lent->memory =
        std::make_shared<std::pair<std::shared_ptr<const void>, std::shared_ptr<const void>>>(
            loan.counted, kept);
    return payload;
  }

  // The tensor of a received message, copied to memory of this side's device.
  Result<std::vector<std::byte>> taken(const Payload& payload) {
    ValueReader reader(payload);
    REVERIE_ASSIGN_OR_RETURN(const ValueToken token, reader.next());
    if (token.device.size() != kDeviceRecordBytes) return data_loss("no tensor of a device came");
    const DeviceRecord record = decode_device_record(token.device.first<kDeviceRecordBytes>());
    REVERIE_ASSIGN_OR_RETURN(const DeviceSource source,
                             devices->find(payload, record, token.size_bytes));
    const std::span<std::byte> to = driver.allocate(token.size_bytes);
    REVERIE_RETURN_IF_ERROR(driver.copy(source.device, FakeDeviceDriver::address(to),
                                        source.address, token.size_bytes, 0));
    REVERIE_RETURN_IF_ERROR(devices->confirm(payload));
    payload.receipt->give();
    return std::vector<std::byte>(to.begin(), to.end());
  }

  FakeDeviceDriver driver;
  std::shared_ptr<Peer> peer;
  std::shared_ptr<DeviceTensors> devices;
};

// The requests that a function was called with.
class Requests {
 public:
  Peer::Handler handler() {
    return [this](Request request) {
      MutexLock lock(mutex_);
      requests_.push_back(std::move(request));
    };
  }
  std::size_t count() {
    MutexLock lock(mutex_);
    return requests_.size();
  }
  Request next() {
    EXPECT_TRUE(eventually([this] { return count() > 0; }));
    MutexLock lock(mutex_);
    Request first = std::move(requests_.front());
    requests_.erase(requests_.begin());
    return first;
  }

 private:
  Mutex mutex_;
  std::vector<Request> requests_ REVERIE_GUARDED_BY(mutex_);
};

void connect(const Side& from, const Side& to) {
  const Result<std::string> address = to.peer->listen("127.0.0.1:0");
  ASSERT_TRUE(address.ok());
  ASSERT_TRUE(from.peer->connect(*address).ok());
}

TEST(DeviceTensors, AreReadFromTheirSendersMemory) {
  Side actor("actor", 1);
  Side learner("learner", 2);
  connect(actor, learner);
  ASSERT_TRUE(learner.peer
                  ->define("double",
                           [&](Request request) {
                             auto bytes = learner.taken(request.message.payload).value();
                             for (std::byte& byte : bytes) byte = byte | std::byte{64};
                             const std::span<std::byte> result =
                                 learner.driver.allocate(bytes.size());
                             std::ranges::copy(bytes, result.begin());
                             learner.peer->answer(request.id, learner.message(result, "actor"));
                           })
                  .ok());
  ASSERT_TRUE(actor.can_lend_to("learner"));
  ASSERT_TRUE(learner.can_lend_to("actor"));
  for (std::uint8_t i = 0; i < 20; ++i) {
    const auto kept = std::make_shared<int>(1);
    const CallResult result = actor.peer->sync(
        "learner", "double", actor.message(actor.tensor(i), "learner", kept), {.deadline = soon()});
    ASSERT_EQ(result.kind, CallResult::Kind::kAnswer) << result.status.to_string();
    const auto bytes = actor.taken(result.payload).value();
    EXPECT_EQ(bytes.size(), kTensorBytes);
    EXPECT_TRUE(std::ranges::all_of(bytes, [i](std::byte b) { return b == std::byte(i | 64); }));
    EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));
  }
  EXPECT_TRUE(eventually([&] {
    return actor.devices->counts().lent_bytes == 0 && learner.devices->counts().lent_bytes == 0;
  }));
  EXPECT_EQ(actor.devices->counts().lent, 20u);
  EXPECT_EQ(actor.devices->counts().found, 20u);
}

TEST(DeviceTensors, AreNotLentToPeersThatDoNotReadThem) {
  Side actor("actor", 1);
  {
    Side learner("another device", 2, {}, /*uses_unix=*/true, /*device=*/9);
    connect(actor, learner);
    EXPECT_FALSE(actor.can_lend_to("another device"));
  }
  {
    Side learner("tcp", 2, {}, /*uses_unix=*/false);
    connect(actor, learner);
    EXPECT_FALSE(actor.can_lend_to("tcp"));
    EXPECT_EQ(learner.driver.opened, 0);
  }
  {
    Side learner("refused", 2);
    learner.driver.opens_handles = false;
    connect(actor, learner);
    EXPECT_FALSE(actor.can_lend_to("refused"));
  }
  {
    Peer::Options options;
    options.name = "older";
    const auto older = Peer::make(options).value();
    ASSERT_TRUE(actor.peer->connect(older->listen("127.0.0.1:0").value()).ok());
    EXPECT_FALSE(actor.can_lend_to("older"));
  }
  EXPECT_FALSE(actor.devices->can_lend(Neighbour(), 0, soon()));
  EXPECT_FALSE(actor.devices->can_lend(actor.peer->neighbour("none"), 0, soon()));
}

TEST(DeviceTensors, AreLentOnceTheirReceiverUsesTheDevice) {
  Side actor("actor", 1);
  Side learner("learner", 2);
  learner.driver.is_used = false;
  connect(actor, learner);
  EXPECT_FALSE(actor.can_lend_to("learner"));
  learner.driver.is_used = true;
  EXPECT_TRUE(eventually([&] { return actor.can_lend_to("learner"); }));
}

TEST(DeviceTensors, AreRefusedAtOnceByAPeerThatHasNoThreadForTheQuestion) {
  Side actor("actor", 1);
  Side learner("learner", 2);
  connect(actor, learner);
  ASSERT_TRUE(eventually([&] { return actor.peer->neighbour("learner").is_proved; }));
  {
    const test::NoNewThreads none;
    EXPECT_FALSE(actor.can_lend_to("learner"));
  }
  const std::string why = actor.devices->counts().refusal;
  EXPECT_NE(why.find("no thread"), std::string::npos) << why;
  EXPECT_TRUE(eventually([&] { return actor.can_lend_to("learner"); }, /*limit_s=*/5));
}

TEST(DeviceTensors, AreLentThoughAnEarlierCallerHadNoTimeForTheQuestion) {
  Requests held;
  Side actor("actor", 1);
  Side learner("learner", 2);
  connect(actor, learner);
  ASSERT_TRUE(eventually([&] { return actor.peer->neighbour("learner").session != 0; }));
  const auto lends_at_once = [&] {
    const Neighbour found = actor.peer->neighbour("learner");
    return actor.devices->can_lend(found, 0, Clock::system().now());
  };
  EXPECT_FALSE(lends_at_once());
  ASSERT_TRUE(eventually([&] { return actor.peer->neighbour("learner").is_proved; }));
  learner.peer->serve_devices(held.handler());
  EXPECT_FALSE(lends_at_once());
  // The learner answers questions again.
  const auto answers =
      DeviceTensors::make(learner.peer, {.driver = &learner.driver, .process = process(2)});
  EXPECT_TRUE(actor.can_lend_to("learner")) << actor.devices->counts().refusal;
  learner.peer->close();
  answers->close();
}

TEST(DeviceTensors, WithoutAHandleAreNotLent) {
  Side actor("actor", 1);
  const std::span<std::byte> tensor = actor.tensor(1);
  actor.driver.has_handles = false;
  const auto loan =
      actor.devices->lend(kNoSession, 0, FakeDeviceDriver::address(tensor), tensor.size());
  EXPECT_EQ(loan.status().code(), StatusCode::kUnavailable);
  EXPECT_EQ(actor.devices->counts().lent_bytes, 0u);
}

TEST(DeviceTensors, ThatAreLentAreBounded) {
  Side actor("actor", 1, {.lent_bytes_max = 3 * kTensorBytes});
  const std::span<std::byte> tensor = actor.tensor(1, 8 * kTensorBytes);
  const std::uint64_t address = FakeDeviceDriver::address(tensor);
  {
    const auto large = actor.devices->lend(kNoSession, 0, address, tensor.size());
    EXPECT_TRUE(large.ok());
    EXPECT_EQ(actor.devices->lend(kNoSession, 0, address, 1).status().code(),
              StatusCode::kResourceExhausted);
  }
  std::vector<DeviceTensors::Loan> loans;
  for (int i = 0; i < 3; ++i) {
    loans.push_back(actor.devices->lend(kNoSession, 0, address, kTensorBytes).value());
  }
  EXPECT_EQ(actor.devices->counts().lent_bytes, 3 * kTensorBytes);
  EXPECT_FALSE(actor.devices->lend(kNoSession, 0, address, 1).ok());
  loans.pop_back();
  EXPECT_TRUE(actor.devices->lend(kNoSession, 0, address, kTensorBytes).ok());
}

TEST(DeviceTensors, OfForgedRecordsAreRefused) {
  Side actor("actor", 1);
  Side learner("learner", 2);
  const std::span<std::byte> tensor = actor.tensor(7);
  const DeviceTensors::Loan loan =
      actor.devices->lend(kNoSession, 0, FakeDeviceDriver::address(tensor), tensor.size()).value();
  Payload message;
  message.is_from_host = true;
  message.receipt =
      std::make_shared<Receipt>(std::function<void()>(), 0, std::weak_ptr<const void>());
  const auto code = [&](const DeviceRecord& record, std::size_t size_bytes = kTensorBytes) {
    return learner.devices->find(message, record, size_bytes).status().code();
  };
  EXPECT_EQ(code(loan.record), StatusCode::kOk);
  EXPECT_EQ(code(loan.record, kTensorBytes + 1), StatusCode::kDataLoss);
  DeviceRecord record = loan.record;
  record.offset = 1;
  EXPECT_EQ(code(record), StatusCode::kDataLoss);
  record.offset = ~std::uint64_t{0};
  EXPECT_EQ(code(record, 2), StatusCode::kDataLoss);
  record = loan.record;
  record.device[3] = std::byte{1};
  EXPECT_EQ(code(record), StatusCode::kUnavailable);
  record = loan.record;
  record.owner = process(2);  // the receiver's own memory
  EXPECT_EQ(code(record), StatusCode::kDataLoss);
  Random random(std::uint64_t{5});
  for (int i = 0; i < 1000; ++i) {
    record = loan.record;
    record.allocation = random.next();
    for (std::byte& byte : record.handle) byte = static_cast<std::byte>(random.next());
    EXPECT_EQ(code(record), StatusCode::kUnavailable);
  }
  // The number of an allocation that is open does not stand for another handle.
  record = loan.record;
  record.handle[0] ^= std::byte{1};
  EXPECT_EQ(code(record), StatusCode::kUnavailable);

  message.is_from_host = false;
  EXPECT_EQ(code(loan.record), StatusCode::kDataLoss);
  message.is_from_host = true;
  message.receipt.reset();
  EXPECT_EQ(code(loan.record), StatusCode::kDataLoss);
}

// A message with lent memory that the other peer has sent.
Payload received_by(const Side& receiver, const std::string& sender) {
  Payload message;
  message.is_from_host = true;
  message.receipt =
      std::make_shared<Receipt>(std::function<void()>(), receiver.peer->neighbour(sender).session,
                                std::weak_ptr<const void>());
  return message;
}

TEST(DeviceTensors, OfOneProcessAreFoundWhileTheyAreLent) {
  Side actor("actor", 1);
  Side learner("learner", 1);
  connect(actor, learner);
  EXPECT_TRUE(actor.can_lend_to("learner"));
  const std::span<std::byte> tensor = actor.tensor(7);
  const Payload message = received_by(learner, "actor");
  const std::uint64_t session = actor.peer->neighbour("learner").session;
  DeviceRecord record;
  {
    const DeviceTensors::Loan loan =
        actor.devices->lend(session, 0, FakeDeviceDriver::address(tensor) + 16, 32).value();
    record = loan.record;
    const auto source = learner.devices->find(message, record, 32);
    ASSERT_TRUE(source.ok());
    EXPECT_EQ(source->address, FakeDeviceDriver::address(tensor) + 16);
    EXPECT_EQ(learner.devices->find(message, record, kTensorBytes).status().code(),
              StatusCode::kDataLoss);
  }
  EXPECT_EQ(learner.devices->find(message, record, 32).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(learner.driver.opened, 0);
}

// The stranger knows the record, but is another process.
TEST(DeviceTensors, OfOneProcessAreShownOnlyToThePeerThatTheyWereLentTo) {
  Side actor("actor", 1);
  Side learner("learner", 1);
  Side stranger("stranger", 2);
  connect(actor, learner);
  ASSERT_TRUE(stranger.peer->connect(learner.peer->addresses().front()).ok());
  ASSERT_TRUE(actor.can_lend_to("learner"));
  ASSERT_TRUE(stranger.can_lend_to("learner"));
  const std::span<std::byte> tensor = actor.tensor(7);
  const std::uint64_t session = actor.peer->neighbour("learner").session;
  const DeviceTensors::Loan loan =
      actor.devices->lend(session, 0, FakeDeviceDriver::address(tensor), tensor.size()).value();

  const auto answer_to = [&](const Side& asker) {
    Payload question;
    ValueWriter(question).bytes(encode_device_record(loan.record));
    const CallResult answer = asker.peer->sync("learner", std::string(kDeviceFunction),
                                               std::move(question), {.deadline = soon()});
    EXPECT_EQ(answer.kind, CallResult::Kind::kAnswer) << answer.status.to_string();
    ValueReader reader(answer.payload);
    return reader.next().value().kind;
  };
  EXPECT_EQ(answer_to(actor), ValueKind::kBytes);
  EXPECT_EQ(answer_to(stranger), ValueKind::kText);

  const auto code_from = [&](const std::string& sender) {
    const Payload message = received_by(learner, sender);
    return learner.devices->find(message, loan.record, kTensorBytes).status().code();
  };
  EXPECT_EQ(code_from("actor"), StatusCode::kOk);
  EXPECT_EQ(code_from("stranger"), StatusCode::kDataLoss);
  EXPECT_EQ(code_from("none"), StatusCode::kDataLoss);
}

TEST(DeviceTensors, HaveTheirAllocationsOpenedOnce) {
  Side actor("actor", 1);
  Side learner("learner", 2, {.open_count_max = 3, .open_for = std::chrono::milliseconds(100)});
  auto run = std::make_shared<int>(1);
  Payload message;
  message.is_from_host = true;
  message.receipt = std::make_shared<Receipt>(std::function<void()>(), 0, run);
  std::vector<DeviceTensors::Loan> loans;
  for (int i = 0; i < 5; ++i) {
    const std::span<std::byte> tensor = actor.tensor(1);
    loans.push_back(
        actor.devices->lend(kNoSession, 0, FakeDeviceDriver::address(tensor), tensor.size())
            .value());
  }
  for (int i = 0; i < 10; ++i) {
    EXPECT_TRUE(learner.devices->find(message, loans[0].record, kTensorBytes).ok());
  }
  EXPECT_EQ(learner.driver.opened, 1);
  {
    const DeviceSource held = learner.devices->find(message, loans[0].record, 1).value();
    for (const DeviceTensors::Loan& loan : loans) {
      EXPECT_TRUE(learner.devices->find(message, loan.record, kTensorBytes).ok());
      EXPECT_LE(learner.devices->counts().open_count, 3u);
    }
    // What is in use is closed after its use.
    EXPECT_EQ(std::to_integer<int>(*reinterpret_cast<const std::byte*>(held.address)), 1);
  }
  EXPECT_TRUE(eventually([&] { return learner.devices->counts().open_count == 0; }));
  EXPECT_TRUE(eventually([&] { return learner.driver.closed == learner.driver.opened; }));
}

TEST(DeviceTensors, HaveTheirAllocationsClosedThoughNoThreadCouldStartAtFirst) {
  Side actor("actor", 1);
  Side learner("learner", 2, {.open_for = std::chrono::milliseconds(100)});
  const auto run = std::make_shared<int>(1);
  Payload message;
  message.is_from_host = true;
  message.receipt = std::make_shared<Receipt>(std::function<void()>(), 0, run);
  const auto open_one = [&] {
    const std::uint64_t address = FakeDeviceDriver::address(actor.tensor(1));
    const auto loan = actor.devices->lend(kNoSession, 0, address, kTensorBytes).value();
    EXPECT_TRUE(learner.devices->find(message, loan.record, kTensorBytes).ok());
  };
  {
    const test::NoNewThreads none;
    open_one();
  }
  open_one();
  EXPECT_TRUE(eventually([&] { return learner.devices->counts().open_count == 0; }));
  EXPECT_EQ(learner.driver.opened, 2);
}

TEST(DeviceTensors, HaveTheirAllocationsClosedWithTheSendersRun) {
  Side actor("actor", 1);
  Side learner("learner", 2, {.open_for = std::chrono::seconds(1)});
  auto run = std::make_shared<int>(1);
  Payload message;
  message.is_from_host = true;
  message.receipt = std::make_shared<Receipt>(std::function<void()>(), 0, run);
  const std::span<std::byte> tensor = actor.tensor(1);
  const auto loan =
      actor.devices->lend(kNoSession, 0, FakeDeviceDriver::address(tensor), 16).value();
  EXPECT_TRUE(learner.devices->find(message, loan.record, 16).ok());
  run.reset();
  EXPECT_TRUE(eventually([&] { return learner.driver.closed == 1; }));
}

TEST(DeviceTensors, AreReleasedIfTheirMessageIsNotRead) {
  Side actor("actor", 1);
  Side learner("learner", 2);
  connect(actor, learner);
  Requests requests;
  ASSERT_TRUE(learner.peer->define("waits", requests.handler()).ok());
  ASSERT_TRUE(actor.can_lend_to("learner"));
  const auto kept = std::make_shared<int>(1);
  const auto message = [&] { return actor.message(actor.tensor(1), "learner", kept); };

  // No function.
  EXPECT_EQ(actor.peer->sync("learner", "none", message(), {.deadline = soon()}).status.code(),
            StatusCode::kNotFound);
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));

  // A call that has ended stays lent until its receiver, which may be reading, has dropped it.
  const CallId call =
      actor.peer->call("learner", "waits", message(), {.deadline = soon()}, [](CallResult) {})
          .value();
  {
    const Request request = requests.next();
    actor.peer->cancel(call);
    EXPECT_TRUE(eventually([&] { return !learner.peer->is_wanted(request.id); }));
    EXPECT_EQ(kept.use_count(), 2);
    EXPECT_TRUE(learner.taken(request.message.payload).ok());
  }
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));

  // The receiver leaves, and has the message still.
  ASSERT_TRUE(
      actor.peer->call("learner", "waits", message(), {.deadline = soon()}, [](CallResult) {})
          .ok());
  const Request request = requests.next();
  EXPECT_EQ(kept.use_count(), 2);
  learner.close();
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));
  EXPECT_EQ(actor.devices->counts().lent_bytes, 0u);
}

TEST(DeviceTensors, GoToNoOtherRunThanTheyWereLentTo) {
  Side actor("actor", 1);
  auto learner = std::make_unique<Side>("learner", 2);
  connect(actor, *learner);
  ASSERT_TRUE(actor.can_lend_to("learner"));
  const auto kept = std::make_shared<int>(1);
  Payload message = actor.message(actor.tensor(1), "learner", kept);
  Payload again = actor.message(actor.tensor(1), "learner", kept);
  Requests requests;
  ASSERT_TRUE(learner->peer->define("waits", requests.handler()).ok());
  CallOptions idempotent{.deadline = soon(), .is_idempotent = true};
  std::atomic<bool> has_failed{false};
  ASSERT_TRUE(actor.peer
                  ->call("learner", "waits", std::move(again), idempotent,
                         [&](const CallResult& result) {
                           has_failed = result.kind != CallResult::Kind::kAnswer;
                         })
                  .ok());
  EXPECT_TRUE(eventually([&] { return requests.count() == 1; }));
  learner = nullptr;
  EXPECT_TRUE(eventually([&] { return has_failed.load(); }));
  const CallResult result = actor.peer->sync("learner", "f", std::move(message), idempotent);
  EXPECT_EQ(result.status.code(), StatusCode::kUnavailable) << result.status.to_string();
  message = {};
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));
  actor.close();
}

// Writes impossible positions to the shared memory of all links of this process: the links end, and
// the next ones share no memory.
void damage_links() {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("/memfd:reverie-link") == std::string::npos) continue;
    const auto begin = static_cast<std::uintptr_t>(std::stoull(line, nullptr, 16));
    reinterpret_cast<RingPage*>(begin)->head.store(~std::uint64_t{0});
    ++count;
  }
  ASSERT_GE(count, 4);  // each side maps its own memory and the other's
}

TEST(DeviceTensors, AreNotLentOnceTheirLinkSharesNoMemory) {
  Side actor("actor", 1, {}, /*uses_unix=*/true, /*device=*/1, kPatience);
  Side learner("learner", 2, {}, /*uses_unix=*/true, /*device=*/1, kPatience);
  connect(actor, learner);
  ASSERT_TRUE(actor.can_lend_to("learner"));
  ASSERT_TRUE(learner.can_lend_to("actor"));
  const std::uint64_t session = actor.peer->neighbour("learner").session;
  ASSERT_NO_FATAL_FAILURE(damage_links());
  const CallOptions options{.deadline = soon()};
  ASSERT_EQ(actor.peer->sync("learner", std::string(kPingFunction), {}, options).kind,
            CallResult::Kind::kAnswer);
  EXPECT_TRUE(eventually([&] { return !actor.can_lend_to("learner"); }));
  EXPECT_TRUE(eventually([&] { return !learner.can_lend_to("actor"); }));
  EXPECT_EQ(actor.peer->neighbour("learner").session, session);
}

// It is on its way when the link ends, and its receiver cannot look into the sender's memory.
TEST(DeviceTensors, AreReceivedThoughTheirNextLinkSharesNoMemory) {
  Requests requests;
  Side actor("actor", 1, {}, /*uses_unix=*/true, /*device=*/1, kPatience);
  Side learner("learner", 2, {}, /*uses_unix=*/true, /*device=*/1, kPatience);
  connect(actor, learner);
  ASSERT_TRUE(learner.peer->define("waits", requests.handler()).ok());
  ASSERT_TRUE(actor.can_lend_to("learner"));
  const auto kept = std::make_shared<int>(1);
  Payload message = actor.message(actor.tensor(7), "learner", kept);
  ASSERT_NO_FATAL_FAILURE(damage_links());
  ASSERT_TRUE(actor.peer
                  ->call("learner", "waits", std::move(message), {.deadline = soon()},
                         [](const CallResult&) {})
                  .ok());
  const Request request = requests.next();
  const auto taken = learner.taken(request.message.payload);
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  EXPECT_EQ(taken->front(), std::byte{7});
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));
  actor.close();
  learner.close();
}

// Runs `serve` in another process, which is killed at the end.
template <typename Serve>
class Child {
 public:
  explicit Child(const Serve& serve) : pid_(::fork()) {
    if (pid_ != 0) return;
    serve();
    while (true) ::pause();
  }
  ~Child() { kill(); }
  void signal(int number) const { ::kill(pid_, number); }
  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_;
};

void pause_briefly() {
  pause_until(Clock::system(), Clock::system().now() + std::chrono::microseconds(200));
}

std::string socket_path() {
  return format("unix:/tmp/reverie-devices-{}-{:x}", ::getpid(), random_seed());
}

TEST(DeviceTensors, AreReleasedWhenTheirReceiverIsKilled) {
  const std::string path = socket_path();
  const auto serve = [&] {
    auto* const learner = new Side("learner", 2);
    auto* const requests = new Requests;
    if (!learner->peer->define("waits", requests->handler()).ok()) ::_exit(1);
    if (!learner->peer->listen(path).ok()) ::_exit(1);
  };
  Child child(serve);
  Side actor("actor", 1);
  ASSERT_TRUE(actor.peer->connect(path).ok());
  ASSERT_TRUE(eventually([&] { return actor.can_lend_to("learner"); }));
  const auto kept = std::make_shared<int>(1);
  std::atomic<int> ended{0};
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(actor.peer
                    ->call("learner", "waits", actor.message(actor.tensor(1), "learner", kept),
                           {.deadline = soon()}, [&](const CallResult&) { ++ended; })
                    .ok());
  }
  EXPECT_EQ(actor.devices->counts().lent_bytes, 10 * kTensorBytes);
  child.kill();
  EXPECT_TRUE(eventually([&] { return ended == 10 && kept.use_count() == 1; }));
  EXPECT_EQ(actor.devices->counts().lent_bytes, 0u);
  ::unlink(path.substr(5).c_str());
}

// A receiver that was stopped for so long that its sender took it for dead.
TEST(DeviceTensors, ThatWereTakenBackAreNotTakenForTheirContents) {
  const std::string path = socket_path();
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const auto serve = [&] {
    auto* const learner = new Side("learner", 2);
    auto* const requests = new Requests;
    if (!learner->peer->define("waits", requests->handler()).ok()) ::_exit(1);
    if (!learner->peer->listen(path).ok()) ::_exit(1);
    const Request request = requests->next();
    char told = 'h';
    if (::write(ends[1], &told, 1) != 1) ::_exit(1);
    // It is stopped, and goes on, about here.
    while (learner->devices->confirm(request.message.payload).ok()) {
    }
    told = learner->taken(request.message.payload).ok() ? 'w' : 'r';
    if (::write(ends[1], &told, 1) != 1) ::_exit(1);
  };
  Child child(serve);
  Side actor("actor", 1);
  ASSERT_TRUE(actor.peer->connect(path).ok());
  ASSERT_TRUE(eventually([&] { return actor.can_lend_to("learner"); }));
  const auto kept = std::make_shared<int>(1);
  ASSERT_TRUE(actor.peer
                  ->call("learner", "waits", actor.message(actor.tensor(1), "learner", kept),
                         {.deadline = soon()}, [](const CallResult&) {})
                  .ok());
  char told = 0;
  ASSERT_EQ(::read(ends[0], &told, 1), 1);
  EXPECT_EQ(told, 'h');
  child.signal(SIGSTOP);
  EXPECT_TRUE(eventually([&] { return kept.use_count() == 1; }));
  child.signal(SIGCONT);
  ASSERT_EQ(::read(ends[0], &told, 1), 1);
  EXPECT_EQ(told, 'r');
  child.kill();
  ::close(ends[0]);
  ::close(ends[1]);
  ::unlink(path.substr(5).c_str());
}

// A sender that was stopped for so long that its receiver has forgotten it, and what it has proved.
TEST(DeviceTensors, AreNotLentToARunThatHasForgottenTheirSendersHost) {
  const std::string path = socket_path();
  const auto send = [&] {
    auto* const actor = new Side("actor", 1, {}, true, 1, std::chrono::minutes(1));
    if (!actor->peer->connect(path).ok()) ::_exit(1);
    const std::span<std::byte> tensor = actor->tensor(1);
    // Some of the calls begin between two connections.
    for (; true; pause_briefly()) {
      if (!actor->can_lend_to("learner")) continue;
      (void)actor->peer->call("learner", "take", actor->message(tensor, "learner"),
                              {.deadline = soon()}, [](const CallResult&) {});
    }
  };
  Child child(send);
  Side learner("learner", 2, {}, true, 1, std::chrono::milliseconds(300));
  Requests requests;
  ASSERT_TRUE(learner.peer->define("take", requests.handler()).ok());
  ASSERT_TRUE(learner.peer->listen(path).ok());
  const auto take = [&] {
    const Request request = requests.next();
    const auto taken = learner.taken(request.message.payload);
    learner.peer->answer(request.id, {});
    // What was on its way when the sender was stopped may be refused.
    EXPECT_NE(taken.status().code(), StatusCode::kDataLoss) << taken.status().to_string();
    return taken.ok();
  };
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(eventually(take));
    child.signal(SIGSTOP);
    EXPECT_TRUE(eventually([&] { return learner.peer->neighbour("actor").session == 0; }));
    child.signal(SIGCONT);
  }
  EXPECT_TRUE(eventually(take));
  child.kill();
  learner.close();
  ::unlink(path.substr(5).c_str());
}

// Programs make a peer, and fork workers that use the device.
TEST(DeviceTensors, AreLentBetweenAForkedProcessAndItsParent) {
  const std::string path = socket_path();
  Side("before", 0).close();
  const auto serve = [&] {
    auto* const learner = new Side("learner", 0);
    if (!learner->peer->listen(path).ok()) ::_exit(1);
  };
  Child child(serve);
  Side actor("actor", 0);
  ASSERT_TRUE(actor.peer->connect(path).ok());
  EXPECT_TRUE(actor.can_lend_to("learner")) << actor.devices->counts().refusal;
  child.kill();
  ::unlink(path.substr(5).c_str());
}

TEST(DeviceTensors, OfAKilledSenderGiveAnError) {
  const std::string path = socket_path();
  const auto send = [&] {
    auto* const actor = new Side("actor", 1);
    if (!actor->peer->connect(path).ok()) ::_exit(1);
    if (!eventually([&] { return actor->can_lend_to("learner"); })) ::_exit(1);
    for (std::uint8_t i = 1; i < 3; ++i) {
      if (!actor->peer
               ->call("learner", "waits", actor->message(actor->tensor(i), "learner"),
                      {.deadline = soon()}, [](const CallResult&) {})
               .ok()) {
        ::_exit(1);
      }
    }
  };
  Child child(send);
  Side learner("learner", 2);
  Requests requests;
  ASSERT_TRUE(learner.peer->define("waits", requests.handler()).ok());
  ASSERT_TRUE(learner.peer->listen(path).ok());
  const Request first = requests.next();
  const Request second = requests.next();
  const auto taken = learner.taken(first.message.payload);
  ASSERT_TRUE(taken.ok()) << taken.status().to_string();
  EXPECT_EQ(taken->front(), std::byte{1});
  child.kill();
  EXPECT_EQ(learner.taken(second.message.payload).status().code(), StatusCode::kUnavailable);
  // What was open is closed, since the sender's run has ended.
  EXPECT_TRUE(eventually([&] { return learner.devices->counts().open_count == 0; }));
  ::unlink(path.substr(5).c_str());
}

}  // namespace
}  // namespace reverie
