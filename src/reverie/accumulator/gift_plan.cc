#include "reverie/accumulator/gift_plan.h"

#include <algorithm>
#include <set>
#include <tuple>

namespace reverie {

void GiftPlan::clear() {
  entries_.clear();
  asked_.clear();
  last_number_ = 0;
}

void GiftPlan::on_report(const std::string& member, std::uint64_t need, bool has_model,
                         TimePoint now) {
  Entry& entry = entries_[member];
  if (need < entry.need) return;  // an older one
  if (need > entry.need) {
    entry.need = need;
    entry.needed_at = now;
    entry.has_model = has_model;
  } else {
    entry.has_model = entry.has_model || has_model;
  }
}

void GiftPlan::on_gifts(const std::vector<AccumulatorGift>& gifts) {
  for (const AccumulatorGift& gift : gifts) {
    const auto place = entries_.find(gift.to);
    if (place == entries_.end() || gift.number == 0) continue;
    Entry& entry = place->second;
    if (entry.number != gift.number) continue;  // another one was asked since
    if (gift.is_lost) entry.number = 0;
    entry.is_sent = !gift.is_lost;
  }
}

std::string GiftPlan::pick(const std::string& receiver, const std::string& last_giver) const {
  const auto rank = [&](const std::string& giver) {
    const auto asked = asked_.find(giver);
    return std::make_tuple(giver == last_giver, asked == asked_.end() ? 0 : asked->second,
                           giver == self_, std::string_view(giver));
  };
  const std::string* best = &self_;
  for (const auto& [name, entry] : entries_) {
    if (entry.has_model && name != receiver && rank(name) < rank(*best)) best = &name;
  }
  return *best;
}

void GiftPlan::ask(Entry& entry, const std::string& giver, TimePoint now) {
  entry.number = ++last_number_;
  entry.number_need = entry.need;
  entry.giver = giver;
  entry.asked_at = now;
  entry.is_sent = false;
  ++asked_[giver];
}

std::vector<std::string> GiftPlan::assign(TimePoint now) {
  std::set<std::string> changed;
  for (auto& [receiver, entry] : entries_) {
    if (!entry.is_open()) continue;
    if (entry.is_asked() && now - entry.asked_at < kPatience) continue;
    const std::string giver = pick(receiver, entry.giver);
    if (entry.is_asked() && giver == entry.giver) {  // there is no other
      entry.asked_at = now;
      continue;
    }
    if (!entry.giver.empty()) changed.insert(entry.giver);
    changed.insert(giver);
    ask(entry, giver, now);
  }
  return {changed.begin(), changed.end()};
}

std::vector<AccumulatorGift> GiftPlan::of(const std::string& giver) const {
  std::vector<AccumulatorGift> gifts;
  for (const auto& [receiver, entry] : entries_) {
    if (!entry.is_open() || !entry.is_asked() || entry.giver != giver) continue;
    gifts.push_back({receiver, entry.number, false});
  }
  return gifts;
}

std::vector<AccumulatorGift> GiftPlan::give_to_all(const std::vector<std::string>& members) {
  std::vector<AccumulatorGift> gifts;
  for (const std::string& member : members) {
    if (member == self_) continue;
    Entry& entry = entries_[member];
    const bool is_open = entry.is_open();
    if (is_open) ask(entry, self_, entry.needed_at);
    gifts.push_back({member, is_open ? entry.number : 0, false});
  }
  return gifts;
}

TimePoint GiftPlan::waits_since() const {
  TimePoint since = TimePoint::max();
  for (const auto& [receiver, entry] : entries_) {
    if (entry.is_open()) since = std::min(since, entry.needed_at);
  }
  return since;
}

TimePoint GiftPlan::next_tick() const {
  TimePoint next = TimePoint::max();
  for (const auto& [receiver, entry] : entries_) {
    if (!entry.is_open()) continue;
    next = std::min(next, entry.is_asked() ? entry.asked_at + kPatience : TimePoint{});
  }
  return next;
}

}  // namespace reverie
