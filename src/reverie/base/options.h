// Options of an object that is made by name: plain values, so that they can come from Python, a
// file or a connection.
//
//     OptionReader reader(options);
//     const double gravity = reader.number("gravity", -10.0);
//     REVERIE_RETURN_IF_ERROR(reader.finish());
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>

#include "reverie/base/status.h"

namespace reverie {

using OptionValue = std::variant<bool, std::int64_t, double, std::string>;
using Options = std::map<std::string, OptionValue>;

// Reads options one by one, then finish() refuses options that were not asked for.
class OptionReader {
 public:
  explicit OptionReader(const Options& options) : options_(options) {}

  // The value, or `fallback` when absent. An integer is accepted as a number; any other type
  // becomes the error that finish() returns.
  double number(const std::string& name, double fallback);
  std::int64_t integer(const std::string& name, std::int64_t fallback);
  bool boolean(const std::string& name, bool fallback);
  std::optional<std::uint64_t> seed(const std::string& name = "seed");

  Status finish();

 private:
  const OptionValue* find(const std::string& name);

  const Options& options_;
  std::set<std::string> asked_;
  Status status_;
};

}  // namespace reverie
