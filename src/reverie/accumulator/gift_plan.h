// GiftPlan: the leader's plan of which member gives the model to which other one.
//
//     b, c need it        a, d, e have it        d gives to b, e to c; then a gives
//
// - Every member that has the model can give it. The one that was asked least often is asked next,
//   and the leader after the others.
// - The program of a member gives the model. If it has not done so after kPatience, another member
//   is asked as well. A gift that did not arrive is asked for again.
//
// A state machine: no lock, clock, thread or message.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reverie/accumulator/accumulator_message.h"
#include "reverie/base/clock.h"

namespace reverie {

// Not thread-safe.
class GiftPlan {
 public:
  static constexpr Duration kPatience = std::chrono::milliseconds(500);

  // `self` is the leader.
  explicit GiftPlan(std::string self) : self_(std::move(self)) {}

  void clear();
  // What `member` has reported: how often it has needed the model, and whether it has it now.
  void on_report(const std::string& member, std::uint64_t need, bool has_model, TimePoint now);
  // Gifts that were sent, or lost.
  void on_gifts(const std::vector<AccumulatorGift>& gifts);
  // Asks for all gifts that are due. Returns the members whose list of() has changed.
  std::vector<std::string> assign(TimePoint now);
  // The gifts that `giver` is asked for.
  std::vector<AccumulatorGift> of(const std::string& giver) const;
  // The leader gives to all `members` except itself now: the gifts for them.
  std::vector<AccumulatorGift> give_to_all(const std::vector<std::string>& members);
  // Since when a member needs the model that no member has sent yet; max: none does.
  TimePoint waits_since() const;
  TimePoint next_tick() const;

 private:
  struct Entry {
    std::uint64_t need = 0;
    bool has_model = false;
    TimePoint needed_at;
    // The gift that was asked for, if there is one.
    std::uint64_t number = 0;
    std::uint64_t number_need = 0;  // the need that it is for
    std::string giver;              // also of the one before
    TimePoint asked_at;
    bool is_sent = false;

    bool is_asked() const { return number != 0 && number_need == need; }
    bool is_open() const { return need > 0 && !has_model && !(is_asked() && is_sent); }
  };

  std::string pick(const std::string& receiver, const std::string& last_giver) const;
  void ask(Entry& entry, const std::string& giver, TimePoint now);

  const std::string self_;
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::uint64_t> asked_;  // how often each member was
  std::uint64_t last_number_ = 0;
};

}  // namespace reverie
