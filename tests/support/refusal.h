// Checks that a call is refused: its code, and words that its message must contain.
#pragma once

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/base/status.h"

namespace reverie {

inline void expect_refused(const Status& status, StatusCode code,
                           const std::vector<std::string>& words) {
  EXPECT_EQ(status.code(), code) << status.to_string();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos)
        << "'" << word << "' is missing in: " << status.message();
  }
}

}  // namespace reverie
