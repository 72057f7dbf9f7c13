// A gathering of values: each member contributes at most one, and each gets all of them. Up one
// tree each member adds its value to those of its children; the root's list goes down to all. A
// value is any head and bulk, as a call carries them.
//
// The program may write to the values that it gets. So a member that sends them on is done once
// its children have received them, or sends a copy if they are small.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "reverie/group/round.h"

namespace reverie {

class GatherRound final : public Round {
 public:
  // `what` must be the same on all members; a message names it if it is not. `tree` is the root.
  GatherRound(std::string what, std::optional<Payload> mine, std::size_t tree, std::size_t member,
              std::size_t member_count);

  void start(std::vector<RoundPart>& out) override;
  Status take(std::size_t from, bool is_up, std::size_t part, Payload payload,
              std::vector<RoundPart>& out) override;
  void arrived() override { --in_flight_; }
  bool is_done() const override { return has_all_ && in_flight_ == 0; }
  std::uint64_t signature_hash() const override { return hash_; }
  const std::string& signature() const override { return what_; }

  // The values by the index of their member, once the round is done.
  std::map<std::size_t, Payload> take_values() { return std::move(values_); }

 private:
  void go_up(std::vector<RoundPart>& out);
  void go_down(std::vector<RoundPart>& out);

  const std::string what_;
  const std::uint64_t hash_;
  const std::size_t tree_;
  const std::size_t member_;
  const std::size_t member_count_;
  std::map<std::size_t, Payload> values_;
  std::array<bool, 2> has_come_{};
  bool has_sent_up_ = false;
  bool has_all_ = false;
  std::size_t in_flight_ = 0;
};

}  // namespace reverie
