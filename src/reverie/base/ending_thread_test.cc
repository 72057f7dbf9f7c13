#include "reverie/base/ending_thread.h"

#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/no_new_threads.h"

namespace reverie {
namespace {

TEST(EndingThread, EndsWhatItIsGivenOnAnotherThreadInOrder) {
  std::vector<int> ended;
  std::thread::id thread;
  {
    EndingThread ending;
    ending.end("a test", [&] {
      ended.push_back(1);
      thread = std::this_thread::get_id();
      ending.end("what the first one held", [&] { ended.push_back(3); });
    });
    ending.end("a test", [&] { ended.push_back(2); });
    ending.wait();
    EXPECT_EQ(ended.size(), 3u);
    ending.end("a test", [&] { ended.push_back(4); });
  }
  EXPECT_NE(thread, std::this_thread::get_id());
  EXPECT_EQ(ended.front(), 1);
  EXPECT_EQ(ended.back(), 4);
}

TEST(EndingThread, WhatCannotEndStays) {
  const auto held = std::make_shared<int>(0);
  bool has_run = false;
  EndingThread ending;
  {
    const test::NoNewThreads none;
    ending.end("a test", [&has_run, held] { has_run = true; });
  }
  ending.wait();
  EXPECT_FALSE(has_run);
  ending.end("a test", [&has_run, held] { has_run = true; });
  ending.wait();
  EXPECT_TRUE(has_run) << "later ones end again";
}

}  // namespace
}  // namespace reverie
