// The JSON of safetensors headers: objects, lists of numbers, strings.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "reverie/base/status.h"

namespace reverie::nn {

// `text` in quotes, escaped as JSON requires.
std::string json_quoted(std::string_view text);

// Reads JSON from left to right, for a caller that knows what must come next. Refuses everything
// else with DATA_LOSS, naming the byte's position.
class JsonReader {
 public:
  explicit JsonReader(std::string_view text) : text_(text) {}

  // Skips white space and takes `symbol` if it comes next.
  bool take(char symbol);
  Status expect(char symbol);
  // A string without its quotes; escapes become UTF-8.
  Result<std::string> string();
  // A whole number >= 0 that fits into 64 bits.
  Result<std::uint64_t> number();
  // Ok if only white space is left.
  Status expect_end();

 private:
  Status error(std::string_view what) const;
  Result<std::uint32_t> hex4();
  void skip_space();

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace reverie::nn
