#include "reverie/base/start_thread.h"

#include <atomic>

#include <gtest/gtest.h>

#include "tests/support/no_new_threads.h"
#include "tests/support/refusal.h"

namespace reverie {
namespace {

TEST(StartThread, RunsTheBodyOnAThreadOfItsOwn) {
  std::thread::id id;
  auto started = start_thread("a test", [&] { id = std::this_thread::get_id(); });
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  started->join();
  EXPECT_NE(id, std::this_thread::get_id());
}

TEST(OwnThread, IsTheCurrentOneOnlyWithinItsBody) {
  OwnThread own;
  bool is_own = false;
  bool is_own_afterwards = true;
  auto started = start_thread("a test", [&] {
    own.run([&] { is_own = own.is_current(); });
    is_own_afterwards = own.is_current();
  });
  ASSERT_TRUE(started.ok()) << started.status().to_string();
  EXPECT_FALSE(own.is_current());
  started->join();
  EXPECT_TRUE(is_own);
  EXPECT_FALSE(is_own_afterwards) << "another thread may get its id";
}

TEST(StartThread, OneThatCannotStartIsRefusedWithARemedyAndRunsNothing) {
  std::atomic<bool> has_run{false};
  const test::NoNewThreads none;
  const auto started = start_thread("a test", [&] { has_run = true; });
  expect_refused(started.status(), StatusCode::kResourceExhausted, {"a test", "ulimit -u"});
  EXPECT_FALSE(has_run);
}

}  // namespace
}  // namespace reverie
