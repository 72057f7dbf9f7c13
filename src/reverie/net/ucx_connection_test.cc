// What every connection does is in tests/conformance/connection_suite.h.
#include "reverie/net/ucx_connection.h"

#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "reverie/net/keyed_hash.h"
#include "reverie/net/ucx_worker.h"
#include "tests/support/connection_end.h"
#include "tests/support/eventually.h"
#include "tests/support/ucx_pair.h"

namespace reverie {
namespace {

using test::ConnectionEnd;
using test::eventually;
using test::make_ucx_pair;
using test::over_ucx;

constexpr std::size_t kOfferBytes = 64;  // before the address
constexpr std::size_t kWindowBytes = std::size_t{1} << 20;

std::string counted(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + (i >> 11u));
  return text;
}

// One end of a socket has a connection over UCX, which the other one does not speak.
class UcxStranger : public ::testing::Test {
 protected:
  UcxStranger() {
    ConnectionPair pair = make_connection_pair(threads_.loop(0), threads_.loop(1)).value();
    socket_ = std::make_unique<ConnectionEnd>(std::move(pair.second));
    ucx_ = std::make_unique<ConnectionEnd>(over_ucx(std::move(pair.first), false, "tcp"));
    ucx_->read_on();
    socket_->read_on();
  }

  // What ends the connection after the stranger has sent `text`.
  std::string end_after(std::string text) {
    socket_->send(std::move(text));
    const Status status = ucx_->wait_for_end();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    return status.message();
  }
  // An offer without the address that should follow.
  static std::string offer(std::uint64_t address_size) {
    std::string text("RvUcx1\n\0", 8);
    text.resize(kOfferBytes, 'k');
    std::memcpy(text.data() + 24, &address_size, sizeof(address_size));
    return text;
  }

  IoThreads threads_{2};
  std::unique_ptr<ConnectionEnd> socket_;
  std::unique_ptr<ConnectionEnd> ucx_;
};

TEST_F(UcxStranger, WhoSendsNoOfferIsRefused) {
  EXPECT_NE(end_after(counted(500)).find("something else than an offer"), std::string::npos);
}

TEST_F(UcxStranger, WhoOffersAnAddressOfAGigabyteIsRefusedBeforeItArrives) {
  EXPECT_NE(end_after(offer(1u << 30)).find("at most 16384 bytes"), std::string::npos);
}

TEST_F(UcxStranger, WhoseAddressIsDamagedIsRefusedBeforeUcxReadsIt) {
  EXPECT_NE(end_after(offer(100) + counted(100)).find("damaged"), std::string::npos);
}

TEST_F(UcxStranger, WhoDoesNotAnswerIsGivenUp) {
  EXPECT_NE(end_after(offer(100)).find("did not answer"), std::string::npos);
}

// As behind a firewall that lets the socket through alone.
TEST_F(UcxStranger, WhoIsNotReachedByUcxIsGivenUp) {
  const UcxKey key{1, 2};
  const auto silent = UcxWorker::make({"tcp"}, true, key, {}).value();  // makes no progress
  const std::span<const std::byte> address = silent->address();
  const std::string_view key_bytes(reinterpret_cast<const char*>(key.data()), sizeof(key));
  const KeyedHash hash = keyed_hash(key_bytes, address);
  std::string text = offer(address.size());
  std::memcpy(text.data() + 8, key.data(), sizeof(key));
  std::memcpy(text.data() + 32, hash.data(), hash.size());
  text.append(reinterpret_cast<const char*>(address.data()), address.size());
  EXPECT_NE(end_after(text).find("over UCX within"), std::string::npos);
}

TEST_F(UcxStranger, WhoHangsUpIsGivenUpAtOnce) {
  socket_->hang_up();
  EXPECT_NE(ucx_->wait_for_end().message().find("has ended"), std::string::npos);
}

// Two connections over UCX, whose sockets lead to the test: it passes the offers on, and may then
// say what it wants.
class UcxBetween : public ::testing::Test {
 protected:
  UcxBetween() {
    ConnectionPair left = make_connection_pair(threads_.loop(0), threads_.loop(1)).value();
    ConnectionPair right = make_connection_pair(threads_.loop(0), threads_.loop(1)).value();
    to_first_ = std::make_unique<ConnectionEnd>(std::move(left.second));
    to_second_ = std::make_unique<ConnectionEnd>(std::move(right.second));
    first_ = std::make_unique<ConnectionEnd>(over_ucx(std::move(left.first), true, "tcp"));
    second_ = std::make_unique<ConnectionEnd>(over_ucx(std::move(right.first), false, "tcp"));
    to_first_->read_on();
    to_second_->read_on();
    to_second_->send(offer_from(*to_first_));
    to_first_->send(offer_from(*to_second_));
  }

  static std::string offer_from(ConnectionEnd& end) {
    std::uint64_t address_size = 0;
    std::memcpy(&address_size, end.received(kOfferBytes).data() + 24, sizeof(address_size));
    return end.received(kOfferBytes + static_cast<std::size_t>(address_size));
  }
  static std::string record(std::uint64_t kind, std::uint64_t total) {
    const std::uint64_t both[] = {kind, total};
    return {reinterpret_cast<const char*>(both), sizeof(both)};
  }

  IoThreads threads_{2};
  std::unique_ptr<ConnectionEnd> to_first_;
  std::unique_ptr<ConnectionEnd> to_second_;
  std::unique_ptr<ConnectionEnd> first_;
  std::unique_ptr<ConnectionEnd> second_;
};

TEST_F(UcxBetween, BytesDoNotGoOverTheSocket) {
  second_->read_on();
  const std::string text = counted(100'000);
  first_->send(text);
  EXPECT_TRUE(second_->received(text.size()) == text);
  EXPECT_LT(to_first_->received(0).size(), 1000u);
}

TEST_F(UcxBetween, MalformedRecordsEndTheConnection) {
  first_->read_on();
  second_->read_on();
  to_first_->send(record(7, 0));
  to_second_->send(record(1, 1000));  // more read than was sent
  for (ConnectionEnd* end : {first_.get(), second_.get()}) {
    const Status status = end->wait_for_end();
    EXPECT_EQ(status.code(), StatusCode::kUnavailable);
    EXPECT_NE(status.message().find("malformed record"), std::string::npos) << status.message();
  }
}

TEST_F(UcxBetween, AnEndBeforeBytesThatHaveArrivedIsMalformed) {
  second_->read_on();
  first_->send("text");
  EXPECT_EQ(second_->received(4), "text");
  to_second_->send(record(2, 3));
  EXPECT_EQ(second_->wait_for_end().code(), StatusCode::kUnavailable);
}

TEST_F(UcxBetween, TheEndOfTheSocketEndsTheConnectionAtOnceAndKeepsWhatHasArrived) {
  second_->read_on();
  first_->send("last words");
  EXPECT_EQ(second_->received(10), "last words");
  to_second_->hang_up();
  const Status status = second_->wait_for_end();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("its socket has ended"), std::string::npos) << status.message();
}

class UcxPair : public ::testing::TestWithParam<std::string> {};

INSTANTIATE_TEST_SUITE_P(Ucx, UcxPair, ::testing::Values("tcp", "shm,self"), [](const auto& entry) {
  return entry.param == "tcp" ? "Tcp" : "SharedMemory";
});

TEST_P(UcxPair, AReaderThatDoesNotReadIsSentAWindowOnly) {
  IoThreads threads(2);
  ConnectionPair pair = make_ucx_pair(threads, GetParam());
  ConnectionEnd writer(std::move(pair.first));
  ConnectionEnd reader(std::move(pair.second));
  const std::string text = counted(5'000'000);
  writer.send(text);
  EXPECT_TRUE(eventually([&] { return writer.unsent() == text.size() - kWindowBytes; }));
  for (int i = 0; i < 100; ++i) EXPECT_EQ(writer.unsent(), text.size() - kWindowBytes);
  reader.read_on();
  EXPECT_TRUE(reader.received(text.size()) == text);
  EXPECT_EQ(writer.unsent(), 0u);
}

TEST_P(UcxPair, AHangUpWhileBothSidesWriteEndsBoth) {
  IoThreads threads(2);
  ConnectionPair pair = make_ucx_pair(threads, GetParam());
  ConnectionEnd first(std::move(pair.first));
  ConnectionEnd second(std::move(pair.second));
  first.read_on();
  second.read_on();
  first.send(counted(20'000'000));
  second.send(counted(20'000'000));
  second.received(1'000'000);
  first.hang_up();
  (void)second.wait_for_end();
}

// Many connections of one loop, each with a worker.
TEST_P(UcxPair, ManyConnectionsShareALoop) {
  IoThreads threads(2);
  std::vector<std::unique_ptr<ConnectionEnd>> ends;
  for (int i = 0; i < 10; ++i) {
    ConnectionPair pair = make_ucx_pair(threads, GetParam());
    ends.push_back(std::make_unique<ConnectionEnd>(std::move(pair.first)));
    ends.push_back(std::make_unique<ConnectionEnd>(std::move(pair.second)));
  }
  const std::string text = counted(200'000);
  for (const auto& end : ends) {
    end->read_on();
    end->send(text);
  }
  for (const auto& end : ends) EXPECT_TRUE(end->received(text.size()) == text);
}

TEST(Ucx, ATransportThatItDoesNotHaveIsReportedByARead) {
  IoThreads threads(2);
  ConnectionPair pair = make_connection_pair(threads.loop(0), threads.loop(1)).value();
  ConnectionEnd end(over_ucx(std::move(pair.first), true, "no_such_transport"));
  end.read_on();
  const Status status = end.wait_for_end();
  EXPECT_EQ(status.code(), StatusCode::kUnavailable);
  EXPECT_NE(status.message().find("no transport"), std::string::npos) << status.message();
}

// A worker of the parent leaves the child without UCX's thread.
TEST(Ucx, AProcessThatWasForkedWhileItWasInUseCannotUseIt) {
  IoThreads threads(2);
  ConnectionPair pair = make_ucx_pair(threads, "tcp");
  const pid_t child = ::fork();
  if (child == 0) {
    const Status status = UcxWorker::make({"tcp"}, true, {}, {}).status();
    ::_exit(status.message().find("was forked") != std::string::npos ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  threads.loop(0).run_and_wait([&] { pair.first.reset(); });
  threads.loop(1).run_and_wait([&] { pair.second.reset(); });
}

// Its library takes them when it is loaded.
TEST(Ucx, LeavesSignalsToTheProgram) {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP}) {
    struct sigaction action {};
    ASSERT_EQ(::sigaction(signal, nullptr, &action), 0);
    Dl_info owner{};
    if (::dladdr(reinterpret_cast<void*>(action.sa_handler), &owner) == 0) continue;
    EXPECT_EQ(std::string(owner.dli_fname).find("libucs"), std::string::npos) << signal;
  }
}

}  // namespace
}  // namespace reverie
