// A process that gets no more memory from the system.
#pragma once

#include <cstddef>
#include <fstream>

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

namespace reverie::testing {

// While it lives, large allocations fail: each has to be mapped. Small ones use what the process
// has. Not for sanitizers, whose own memory is mapped too.
class NoMoreMemory {
 public:
  NoMoreMemory() {
    EXPECT_EQ(getrlimit(RLIMIT_AS, &before_), 0);
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    EXPECT_GT(pages, 0u);
    rlimit now = before_;
    now.rlim_cur = pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    EXPECT_EQ(setrlimit(RLIMIT_AS, &now), 0);
  }
  ~NoMoreMemory() { EXPECT_EQ(setrlimit(RLIMIT_AS, &before_), 0); }
  NoMoreMemory(const NoMoreMemory&) = delete;
  NoMoreMemory& operator=(const NoMoreMemory&) = delete;

 private:
  rlimit before_;
};

}  // namespace reverie::testing
