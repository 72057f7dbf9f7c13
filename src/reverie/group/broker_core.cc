// Tested in tests/sim/groups_sim_test.cc.
#include "reverie/group/broker_core.h"

#include <algorithm>
#include <utility>

namespace reverie {

void BrokerCore::on_request(const Request& request, TimePoint now) {
  Result<BrokerRequest> read = decode_broker_request(request.message.payload);
  if (!read.ok()) {
    answers_.push_back({request.id, read.status(), {}});
    return;
  }
  Status status = check_group_name(read->group);
  if (status.ok() && read->self.name != request.caller) {
    status = invalid_argument("'{}' asks in the name of '{}'; a peer joins under its own name",
                              request.caller, read->self.name);
  }
  if (!status.ok()) {
    answers_.push_back({request.id, std::move(status), {}});
  } else if (read->ask == BrokerRequestKind::kLeave) {
    on_leave(request.id, *read, now);
  } else {
    on_watch(request.id, std::move(*read), now);
  }
}

void BrokerCore::on_watch(InboundId id, BrokerRequest request, TimePoint now) {
  auto place = groups_.find(request.group);
  if (place == groups_.end()) {
    if (groups_.size() >= options_.groups_max) {
      answers_.push_back({id,
                          resource_exhausted("the broker has {} groups, its bound; use another "
                                             "broker for '{}'",
                                             groups_.size(), request.group),
                          {}});
      return;
    }
    place = groups_.emplace(request.group, State{}).first;
  }
  State& state = place->second;
  const auto is_ahead = [&] {
    return request.known.id != state.current.id && request.known.epoch > 0 &&
           request.known.epoch >= state.current.epoch;
  };
  if (is_ahead()) adopt(state, request.known, now);

  auto found = state.entries.find(request.self.name);
  if (found != state.entries.end() &&
      found->second.member.incarnation != request.self.incarnation) {
    if (found->second.request) {
      answers_.push_back({*found->second.request,
                          failed_precondition("'{}' has joined group '{}' again, and is a member "
                                              "once",
                                              request.self.name, request.group),
                          {}});
    }
    state.entries.erase(found);
    found = state.entries.end();
    changed(state, now);
  }
  if (found == state.entries.end()) {
    if (state.entries.size() >= kMembersMax) {
      answers_.push_back({id,
                          resource_exhausted("group '{}' has {} members, which is the bound",
                                             request.group, state.entries.size()),
                          {}});
      return;
    }
    Entry entry;
    entry.joined = state.next_joined++;
    found = state.entries.emplace(request.self.name, entry).first;
    changed(state, now);
  }
  Entry& entry = found->second;
  if (entry.is_listed && entry.member.sort_order != request.self.sort_order) changed(state, now);
  if (entry.request) {
    answers_.push_back({*entry.request, cancelled("the member has asked again"), {}});
  }
  entry.member = std::move(request.self);
  entry.request = id;
  entry.lost_at = TimePoint::max();
  entry.is_awaited = false;
  // A member with a later epoch than this broker's waits for an epoch above its own.
  if (is_ahead()) return;
  if (entry.is_listed && (request.known.id != state.current.id || request.wants_word)) {
    answer_watch(state, entry, now);
  }
}

void BrokerCore::adopt(State& state, const Membership& known, TimePoint now) {
  if (state.entries.empty()) {
    state.current = known;
    for (const Member& member : known.members) {
      Entry entry;
      entry.member = member;
      entry.joined = state.next_joined++;
      entry.lost_at = now + options_.rejoin_timeout;
      entry.is_listed = true;
      entry.is_awaited = true;
      state.entries.emplace(member.name, std::move(entry));
    }
    return;
  }
  // Other members came first: the old membership ends, and a new epoch begins with all that return.
  if (known.epoch <= state.epoch_floor) return;
  state.epoch_floor = known.epoch;
  for (const Member& member : known.members) {
    if (state.entries.contains(member.name)) continue;
    Entry entry;
    entry.member = member;
    entry.joined = state.next_joined++;
    entry.lost_at = now + options_.rejoin_timeout;
    entry.is_awaited = true;
    state.entries.emplace(member.name, std::move(entry));
  }
  changed(state, now);
}

void BrokerCore::on_leave(InboundId id, const BrokerRequest& request, TimePoint now) {
  answers_.push_back({id, {}, {}});
  const auto place = groups_.find(request.group);
  if (place == groups_.end()) return;
  State& state = place->second;
  const auto found = state.entries.find(request.self.name);
  if (found == state.entries.end() ||
      found->second.member.incarnation != request.self.incarnation) {
    return;
  }
  if (found->second.request) {
    answers_.push_back({*found->second.request, cancelled("the member has left"), {}});
  }
  state.entries.erase(found);
  changed(state, now);
}

void BrokerCore::on_withdrawn(InboundId request, TimePoint now) {
  for (auto& [name, state] : groups_) {
    for (auto& [member, entry] : state.entries) {
      if (entry.request != request) continue;
      entry.request.reset();
      entry.lost_at = now + options_.grace;
      return;
    }
  }
}

bool BrokerCore::is_awaiting(const State& state) {
  return std::any_of(state.entries.begin(), state.entries.end(),
                     [](const auto& entry) { return entry.second.is_awaited; });
}

void BrokerCore::changed(State& state, TimePoint now) {
  state.change_at = std::min(state.change_at, now + options_.settle);
}

void BrokerCore::answer_watch(State& state, Entry& entry, TimePoint now) {
  answers_.push_back({*entry.request, {}, encode(state.current)});
  entry.request.reset();
  entry.lost_at = now + options_.return_grace;
}

void BrokerCore::publish(State& state, TimePoint now) {
  state.change_at = TimePoint::max();
  std::vector<Entry*> listed;
  for (auto& [name, entry] : state.entries) listed.push_back(&entry);
  std::sort(listed.begin(), listed.end(), [](const Entry* a, const Entry* b) {
    return std::pair(a->member.sort_order, a->joined) < std::pair(b->member.sort_order, b->joined);
  });
  state.current.epoch = std::max(state.current.epoch, state.epoch_floor) + 1;
  do {
    state.current.id = options_.random();
  } while (state.current.id == 0);
  state.current.members.clear();
  for (Entry* const entry : listed) {
    entry->is_listed = true;
    state.current.members.push_back(entry->member);
  }
  for (Entry* const entry : listed) {
    if (entry->request) answer_watch(state, *entry, now);
  }
}

void BrokerCore::tick(TimePoint now) {
  for (auto place = groups_.begin(); place != groups_.end();) {
    State& state = place->second;
    const std::size_t lost = std::erase_if(
        state.entries, [&](const auto& entry) { return entry.second.lost_at <= now; });
    if (state.entries.empty()) {
      place = groups_.erase(place);
      continue;
    }
    if (lost > 0) state.change_at = now;  // the others wait for this
    if (state.change_at <= now && !is_awaiting(state)) publish(state, now);
    ++place;
  }
}

TimePoint BrokerCore::next_tick() const {
  TimePoint next = TimePoint::max();
  for (const auto& [name, state] : groups_) {
    if (!is_awaiting(state)) next = std::min(next, state.change_at);
    if (state.entries.empty()) next = TimePoint{};
    for (const auto& [member, entry] : state.entries) next = std::min(next, entry.lost_at);
  }
  return next;
}

void BrokerCore::close() {
  for (const auto& [name, state] : groups_) {
    for (const auto& [member, entry] : state.entries) {
      if (!entry.request) continue;
      answers_.push_back({*entry.request, unavailable("the broker of '{}' was closed", name), {}});
    }
  }
  groups_.clear();
}

std::vector<GroupInfo> BrokerCore::groups() const {
  std::vector<GroupInfo> infos;
  for (const auto& [name, state] : groups_) {
    GroupInfo info{name, state.current, {}};
    for (const auto& [member, entry] : state.entries) {
      if (!entry.request) info.missing.push_back(member);
    }
    infos.push_back(std::move(info));
  }
  return infos;
}

}  // namespace reverie
