// The part of AccumulatorCore that gives the model to members that need it.
//
// Tested in tests/sim/accumulator_sim_test.cc.
#include <algorithm>
#include <utility>

#include "reverie/accumulator/accumulator_core.h"
#include "reverie/group/membership.h"
#include "reverie/rpc/frame.h"

namespace reverie {
namespace {

// A member sends a state to at most so many others, which pass it on.
constexpr std::size_t kStateFanOut = 2;
// A state's message has at most so many bytes besides the value, and so many for each receiver.
constexpr std::size_t kStateRestMax = 256;
constexpr std::size_t kReceiverBytesMax = kGroupNameMax + 32;

}  // namespace

bool AccumulatorCore::wants_state() const {
  return has_model_ && std::any_of(asked_.begin(), asked_.end(), [&](const AccumulatorGift& gift) {
           const auto gave = gave_.find(gift.to);
           return gave == gave_.end() || gave->second.number < gift.number;
         });
}

Status AccumulatorCore::give_state(const Payload& value, bool to_all, TimePoint now) {
  const FrameLimits limits;
  const std::size_t rest = kStateRestMax + members_.size() * kReceiverBytesMax;
  if (!limits.allow(value.head.size() + rest, value.bulk_bytes())) {
    return invalid_argument(
        "the model and state of accumulator '{}' have {} bytes of values and {} of arrays; the "
        "bounds are {} and {}: give large values as arrays, not as bytes, text or pickles",
        options_.title, value.head.size(), value.bulk_bytes(), limits.head_bytes_max - rest,
        limits.bulk_bytes_max);
  }
  if (!has_model_) return {};
  std::vector<AccumulatorGift> gifts;
  if (to_all && is_leader()) {
    gifts = plan_.give_to_all(members_);
  } else {
    for (const AccumulatorGift& gift : asked_) {
      const auto gave = gave_.find(gift.to);
      if (gave == gave_.end() || gave->second.number < gift.number) gifts.push_back(gift);
    }
  }
  if (gifts.empty()) return {};
  AccumulatorMessage state;
  state.kind = AccumulatorMessageKind::kState;
  state.key = key_;
  state.vote.version = version_;
  state.vote.lineage = options_.lineage;
  state.slot = delivered_;
  state.value = value.head;
  send_state(state, value.bulk, gifts);
  note_gifts(gifts, now);
  return {};
}

void AccumulatorCore::send_state(const AccumulatorMessage& state,
                                 const std::vector<BulkPiece>& bulk,
                                 std::vector<AccumulatorGift> gifts) {
  const std::size_t count = std::min(kStateFanOut, gifts.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto at = [&](std::size_t place) {
      return gifts.begin() + static_cast<std::ptrdiff_t>(gifts.size() * place / count);
    };
    AccumulatorMessage message = state;
    message.gifts.assign(at(i) + 1, at(i + 1));
    Outgoing out;
    out.peer = at(i)->to;
    out.ticket = next_ticket_++;
    out.deadline = TimePoint::max();  // it fails when the member is lost
    out.payload = encode(message);
    out.payload.bulk = bulk;
    states_[out.ticket].assign(at(i), at(i + 1));
    outgoing_.push_back(std::move(out));
  }
}

void AccumulatorCore::on_state(AccumulatorMessage message, std::vector<BulkPiece> bulk) {
  State state;
  state.is_passed_on = !message.gifts.empty();
  if (state.is_passed_on) send_state(message, bulk, std::exchange(message.gifts, {}));
  if (incoming_ && incoming_->first.slot > message.slot) return;
  state.value.head = std::move(message.value);
  state.value.bulk = std::move(bulk);
  incoming_.emplace(std::move(message), std::move(state));
}

void AccumulatorCore::note_gifts(const std::vector<AccumulatorGift>& gifts, TimePoint now) {
  for (const AccumulatorGift& gift : gifts) {
    if (gift.number > 0) gave_[gift.to] = gift;
  }
  if (is_leader()) {
    plan_.on_gifts(gifts);
    return ask_for_gifts(now);
  }
  if (leader_.empty() || gave_.empty()) return;
  AccumulatorMessage message;
  message.kind = AccumulatorMessageKind::kGave;
  for (const auto& [receiver, gift] : gave_) message.gifts.push_back(gift);
  put(leader_, std::move(message), now);
}

void AccumulatorCore::ask_for_gifts(TimePoint now) {
  for (const std::string& giver : plan_.assign(now)) {
    if (giver == options_.name) {
      asked_ = plan_.of(giver);
      continue;
    }
    AccumulatorMessage message;
    message.kind = AccumulatorMessageKind::kGive;
    message.gifts = plan_.of(giver);
    put(giver, std::move(message), now);
  }
}

}  // namespace reverie
