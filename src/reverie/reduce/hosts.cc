#include "reverie/reduce/hosts.h"

#include <algorithm>
#include <map>

namespace reverie {

Hosts Hosts::of(std::span<const std::string> names) {
  std::map<std::string, std::uint32_t> known;
  std::vector<std::uint32_t> numbers;
  for (const std::string& name : names) {
    const auto next = static_cast<std::uint32_t>(known.size());
    numbers.push_back(known.emplace(name, next).first->second);
  }
  return *from_numbers(numbers);
}

std::optional<Hosts> Hosts::from_numbers(std::span<const std::uint32_t> numbers) {
  Hosts hosts;
  for (const std::uint32_t number : numbers) {
    if (number > hosts.members_.size()) return std::nullopt;
    if (number == hosts.members_.size()) hosts.members_.emplace_back();
    std::vector<std::size_t>& members = hosts.members_[number];
    hosts.places_.push_back(members.size());
    members.push_back(hosts.numbers_.size());
    hosts.numbers_.push_back(number);
  }
  return hosts;
}

std::size_t Hosts::largest() const {
  std::size_t most = 0;
  for (const auto& members : members_) most = std::max(most, members.size());
  return most;
}

}  // namespace reverie
