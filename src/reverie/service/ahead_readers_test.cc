#include "reverie/service/ahead_readers.h"

#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace reverie {
namespace {

// Writes down what it is told.
class LoggedReader final : public AheadReader {
 public:
  LoggedReader(std::vector<std::string>& told, std::string name, bool is_late = false)
      : told_(told), name_(std::move(name)), is_late_(is_late) {}
  void begin_pause() override { told_.push_back(name_ + " stop"); }
  bool wait_until_still(TimePoint deadline) override {
    told_.push_back(name_ + " still");
    EXPECT_GT(deadline, Clock::system().now());
    return !is_late_;
  }
  void hand_back() override { told_.push_back(name_ + " back"); }
  void resume() override { told_.push_back(name_ + " on"); }

 private:
  std::vector<std::string>& told_;
  const std::string name_;
  const bool is_late_;
};

using Told = std::vector<std::string>;

TEST(AheadReaders, AllAreStillBeforeOneHandsBackAndGoOnAfterTheFreeze) {
  Told told;
  AheadReaders readers;
  const auto a = std::make_shared<LoggedReader>(told, "a");
  const auto b = std::make_shared<LoggedReader>(told, "b");
  readers.add(a);
  readers.add(b);
  readers.pause_for([&] { told.emplace_back("freeze"); });
  EXPECT_EQ(told, (Told{"a stop", "b stop", "a still", "b still", "a back", "b back", "freeze",
                        "a on", "b on"}));
}

TEST(AheadReaders, AReaderThatIsLateIsLeftOut) {
  Told told;
  AheadReaders readers;
  const auto late = std::make_shared<LoggedReader>(told, "late", true);
  const auto other = std::make_shared<LoggedReader>(told, "other");
  readers.add(late);
  readers.add(other);
  readers.pause_for([&] { told.emplace_back("freeze"); });
  EXPECT_EQ(told, (Told{"late stop", "other stop", "late still", "other still", "other back",
                        "freeze", "late on", "other on"}));
}

TEST(AheadReaders, AReaderOfAPauseThatHasBegunStopsAtOnce) {
  Told told;
  AheadReaders readers;
  const auto made_meanwhile = std::make_shared<LoggedReader>(told, "a");
  readers.pause_for([&] {
    readers.add(made_meanwhile);
    told.emplace_back("freeze");
  });
  EXPECT_EQ(told, (Told{"a stop", "freeze", "a on"}));
}

TEST(AheadReaders, ReadersGoOnAfterAFreezeThatThrows) {
  Told told;
  AheadReaders readers;
  const auto reader = std::make_shared<LoggedReader>(told, "a");
  readers.add(reader);
  EXPECT_THROW(readers.pause_for([] { throw std::bad_alloc(); }), std::bad_alloc);
  EXPECT_EQ(told.back(), "a on");
}

TEST(AheadReaders, ReadersThatHaveEndedAreForgotten) {
  Told told;
  AheadReaders readers;
  auto ended = std::make_shared<LoggedReader>(told, "ended");
  readers.add(ended);
  readers.pause_for([] {});
  EXPECT_EQ(told, (Told{"ended stop", "ended still", "ended back", "ended on"}));
  ended.reset();
  readers.pause_for([] {});
  EXPECT_EQ(told.size(), 4u);
}

}  // namespace
}  // namespace reverie
