#include "reverie/base/options.h"

namespace reverie {

const OptionValue* OptionReader::find(const std::string& name) {
  asked_.insert(name);
  const auto found = options_.find(name);
  return found == options_.end() ? nullptr : &found->second;
}

double OptionReader::number(const std::string& name, double fallback) {
  const OptionValue* const value = find(name);
  if (!value) return fallback;
  if (const auto* d = std::get_if<double>(value)) return *d;
  if (const auto* i = std::get_if<std::int64_t>(value)) return static_cast<double>(*i);
  status_ = invalid_argument("option '{}' must be a number", name);
  return fallback;
}

std::int64_t OptionReader::integer(const std::string& name, std::int64_t fallback) {
  const OptionValue* const value = find(name);
  if (!value) return fallback;
  if (const auto* i = std::get_if<std::int64_t>(value)) return *i;
  status_ = invalid_argument("option '{}' must be an integer", name);
  return fallback;
}

bool OptionReader::boolean(const std::string& name, bool fallback) {
  const OptionValue* const value = find(name);
  if (!value) return fallback;
  if (const auto* b = std::get_if<bool>(value)) return *b;
  status_ = invalid_argument("option '{}' must be true or false", name);
  return fallback;
}

std::optional<std::uint64_t> OptionReader::seed(const std::string& name) {
  if (!find(name)) return std::nullopt;
  return static_cast<std::uint64_t>(integer(name, 0));
}

Status OptionReader::finish() {
  REVERIE_RETURN_IF_ERROR(status_);
  for (const auto& entry : options_) {
    if (!asked_.contains(entry.first)) {
      std::string known;
      for (const std::string& name : asked_) known += (known.empty() ? "" : ", ") + name;
      return invalid_argument("there is no option '{}'; known are: {}", entry.first,
                              known.empty() ? "none" : known);
    }
  }
  return {};
}

}  // namespace reverie
