// Hosts: which members of a group are on one host, for reductions in two levels.
//
//     member   0  1  2  3  4  5
//     host     0  0  1  0  2  1        numbered in the order of their first members
//     place    0  1  0  2  0  1        among the members of the host; place 0 leads it
//
// A value. Members are indices in [0, member_count()).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace reverie {

class Hosts {
 public:
  // Members with equal names are on one host.
  static Hosts of(std::span<const std::string> names);
  // From numbers(); none if no Hosts has them.
  static std::optional<Hosts> from_numbers(std::span<const std::uint32_t> numbers);

  std::size_t member_count() const { return numbers_.size(); }
  std::size_t count() const { return members_.size(); }
  std::size_t host_of(std::size_t member) const { return numbers_[member]; }
  std::size_t place_of(std::size_t member) const { return places_[member]; }
  // The members of a host, in their order. The first leads it.
  std::span<const std::size_t> members_of(std::size_t host) const { return members_[host]; }
  std::size_t leader_of(std::size_t host) const { return members_[host].front(); }
  bool is_leader(std::size_t member) const { return places_[member] == 0; }
  std::size_t largest() const;  // the most members of one host
  const std::vector<std::uint32_t>& numbers() const { return numbers_; }

 private:
  std::vector<std::uint32_t> numbers_;
  std::vector<std::size_t> places_;
  std::vector<std::vector<std::size_t>> members_;
};

}  // namespace reverie
