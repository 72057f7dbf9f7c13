// Tested in tests/sim/groups_sim_test.cc.
// GroupCore's messages: those that other members send, and the answers to those sent to them.
#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>

#include "reverie/group/group_core.h"
#include "reverie/reduce/reduce_layout.h"
#include "reverie/rpc/frame.h"

namespace reverie {
namespace {

constexpr std::size_t kFuturesMax = 64;
// A message that is kept, with its place in a map and the names in it.
constexpr std::size_t kEarlyCost = 1024;
constexpr std::size_t kAbortedMax = 4096;
constexpr Duration kCompareMax = std::chrono::seconds(1);
constexpr char kOtherData[] = "reverie.OtherData";

bool is_out_of_reach(const CallResult& result) {
  const StatusCode code = result.status.code();
  return result.kind == CallResult::Kind::kRestarted ||
         (result.kind == CallResult::Kind::kFailed &&
          (code == StatusCode::kUnavailable || code == StatusCode::kNotFound));
}

// A member that has left has no such function any more.
bool has_lost_member(const CallResult& result) {
  return is_out_of_reach(result) || (result.kind == CallResult::Kind::kRemoteError &&
                                     result.status.code() == StatusCode::kNotFound);
}

}  // namespace

void GroupCore::call(const std::string& peer, std::string function, Payload payload, Sent sent,
                     TimePoint deadline) {
  Outgoing out;
  out.peer = peer;
  out.function = std::move(function);
  out.ticket = next_ticket_++;
  out.payload = std::move(payload);
  out.deadline = deadline;
  sent_.emplace(out.ticket, std::move(sent));
  outgoing_.push_back(std::move(out));
}

void GroupCore::answer(InboundId request, Payload payload) {
  if (request == InboundId{}) return;  // it was answered on arrival
  Outgoing out;
  out.kind = Outgoing::Kind::kAnswer;
  out.request = request;
  out.payload = std::move(payload);
  outgoing_.push_back(std::move(out));
}

void GroupCore::fail(InboundId request, StatusCode code, std::string type, std::string text) {
  if (request == InboundId{}) return;
  Outgoing out;
  out.kind = Outgoing::Kind::kFail;
  out.request = request;
  out.error = {code, std::move(type), std::move(text), ""};
  outgoing_.push_back(std::move(out));
}

void GroupCore::on_request(Request request, TimePoint now) {
  Result<RoundMessage> read = decode_round_message(request.message.payload);
  if (!read.ok()) {
    fail(request.id, read.status().code(), "", read.status().message());
    return;
  }
  RoundMessage& message = *read;
  const bool is_current = current_.epoch > 0 && message.membership == current_.id;
  const auto from = is_current ? current_.index_of(request.caller) : std::nullopt;
  if (is_current && !from) {
    fail(request.id, StatusCode::kFailedPrecondition, "",
         format("'{}' is no member of group '{}'", request.caller, member_.options().group));
    return;
  }
  if (message.kind == RoundMessageKind::kAsk) {
    const auto begun = begun_.find(message.round.name);
    RoundWord word;
    word.has_begun = is_current && begun != begun_.end() && message.round.count < begun->second;
    word.still_ms = (now - member_.last_advanced()).count() / 1'000'000;
    const auto running = running_.find(message.round);
    if (message.part == 1 && is_current && running != running_.end()) {
      word.signature = running->second.round->signature();
    }
    if (is_current) {
      for (const Failed& failed : failed_) {
        if (failed.round != message.round) continue;
        word.ended = failed.status;
        word.lost = failed.lost;
      }
    }
    answer(request.id, encode(word));
    return;
  }
  if (!is_current) {
    // A member that asks for shared memory too early will ask again.
    if (is_past(message.membership) || message.kind == RoundMessageKind::kShare) {
      answer(request.id);
    } else {
      keep_future(std::move(message), std::move(request), now);
    }
    return;
  }
  if (message.kind == RoundMessageKind::kAbort) {
    on_abort(message);
    answer(request.id);
    return;
  }
  if (message.kind == RoundMessageKind::kShare) {
    return on_share_request(message, *from, request.id, now);
  }
  on_part(*from, std::move(message), std::move(request), now);
}

std::optional<GroupCore::Early> GroupCore::keep(std::size_t from, RoundMessage message,
                                                Request request, TimePoint now) {
  Payload& payload = request.message.payload;
  const std::size_t size = kEarlyCost + payload.head.size() + payload.bulk_bytes();
  if (early_bytes_ > 0 && early_bytes_ + size > early_bytes_max_) {
    fail(request.id, StatusCode::kResourceExhausted, "",
         format("{} bytes wait for rounds that have not begun, and this message takes {}; the "
                "bound is {}",
                early_bytes_, size, early_bytes_max_));
    return std::nullopt;
  }
  answer(request.id);
  early_bytes_ += size;
  payload.head = {};
  return Early{from, std::move(request.caller), std::move(message), std::move(payload), now, size};
}

void GroupCore::keep_future(RoundMessage message, Request request, TimePoint now) {
  std::optional<Early> early = keep(0, std::move(message), std::move(request), now);
  if (!early) return;
  const std::uint64_t membership = early->message.membership;
  while (futures_.size() >= kFuturesMax && !futures_.contains(membership)) {
    const auto oldest = std::min_element(
        futures_.begin(), futures_.end(),
        [](const auto& a, const auto& b) { return a.second.front().came < b.second.front().came; });
    for (const Early& kept : oldest->second) early_bytes_ -= kept.size_bytes;
    futures_.erase(oldest);
  }
  futures_[membership].push_back(*std::move(early));
}

void GroupCore::on_part(std::size_t from, RoundMessage message, Request request, TimePoint now) {
  const RoundKey key = message.round;
  const auto running = running_.find(key);
  // The leader of a host takes parts once it has what its host brings.
  const bool is_held = running != running_.end() && (running->second.path == Path::kHeld ||
                                                     running->second.path == Path::kToLeader);
  if (running != running_.end() && !is_held) {
    take(running->second, key, from, message, std::move(request.message.payload), request.id);
    end_if_done(key);
    return;
  }
  const auto begun = begun_.find(key.name);
  const bool is_over = begun != begun_.end() && key.count < begun->second && !is_held;
  if (is_over || aborted_.contains(key)) {
    answer(request.id);
    return;
  }
  std::optional<Early> early = keep(from, std::move(message), std::move(request), now);
  if (early) early_[key].push_back(*std::move(early));
}

void GroupCore::on_abort(const RoundMessage& message) {
  const RoundKey& key = message.round;
  std::vector<std::string> lost;
  if (!message.lost.empty()) lost.push_back(message.lost);
  if (running_.contains(key)) {
    end(key, message.status, lost, /*notifies_others=*/false);
    return;
  }
  const auto begun = begun_.find(key.name);
  if (begun != begun_.end() && key.count < begun->second) return;
  (void)take_early(key);
  if (aborted_.size() < kAbortedMax) aborted_.try_emplace(key, Ended{0, message.status, lost});
}

void GroupCore::take(Running& running, const RoundKey& key, std::size_t from,
                     const RoundMessage& message, Payload payload, InboundId request) {
  if (message.signature != running.round->signature_hash()) {
    // The sender compares the signatures, and ends the round on all members.
    fail(request, StatusCode::kInvalidArgument, kOtherData, running.round->signature());
    return;
  }
  if (!running.is_over_calls() || (running.path == Path::kAcross && !hosts_->is_leader(from))) {
    fail(request, StatusCode::kDataLoss, "",
         "a part was sent of a round that goes through shared memory");
    return;
  }
  if (running.path == Path::kAcross) from = hosts_->host_of(from);
  Payload inner;
  inner.head = message.head;
  inner.bulk = std::move(payload.bulk);
  std::vector<RoundPart> parts;
  const Status status =
      running.round->take(from, message.kind == RoundMessageKind::kUp,
                          static_cast<std::size_t>(message.part), std::move(inner), parts);
  if (!status.ok()) {
    fail(request, status.code(), "", status.message());
    return;
  }
  answer(request);
  send_parts(key, running.id, *running.round, std::move(parts));
}

void GroupCore::send_parts(const RoundKey& key, RoundId id, Round& round,
                           std::vector<RoundPart> parts) {
  const bool is_across = running_.at(key).path == Path::kAcross;
  const FrameLimits limits;
  std::vector<std::pair<Sent, Payload>> messages;
  for (RoundPart& part : parts) {
    RoundMessage message;
    message.kind = part.is_up ? RoundMessageKind::kUp : RoundMessageKind::kDown;
    message.membership = current_.id;
    message.round = key;
    message.signature = round.signature_hash();
    message.part = part.part;
    message.head = std::move(part.head);
    Payload payload = encode(message);
    payload.bulk = std::move(part.bulk);
    if (!limits.allow(payload.head.size(), payload.bulk_bytes())) {
      // Parts grow on their way to the root, so no member has the result.
      return end(key,
                 invalid_argument(
                     "round '{}' has {} bytes of values and {} of arrays in one message of '{}'; "
                     "the bounds are {} and {}: give large values as arrays, not as bytes, text or "
                     "pickles, or in several rounds",
                     key.name, payload.head.size(), payload.bulk_bytes(),
                     member_.options().self.name, limits.head_bytes_max, limits.bulk_bytes_max),
                 {}, /*notifies_others=*/true);
    }
    Sent sent;
    sent.round = key;
    sent.id = id;
    sent.membership = current_.id;
    const std::size_t member = is_across ? hosts_->leader_of(part.to) : part.to;
    sent.to = current_.members[member].name;
    sent.must_arrive = part.must_arrive;
    messages.emplace_back(std::move(sent), std::move(payload));
  }
  for (auto& [sent, payload] : messages) {
    const std::string to = sent.to;
    call(to, function_, std::move(payload), std::move(sent));
  }
}

void GroupCore::on_answered(std::uint64_t ticket, const CallResult& result, TimePoint now) {
  const auto place = sent_.find(ticket);
  if (place == sent_.end()) return;
  const Sent sent = std::move(place->second);
  sent_.erase(place);
  switch (sent.what) {
    case Sent::What::kMember:
      member_.on_answered(sent.member_ticket, result, now);
      after_member();
      return;
    case Sent::What::kPart:
      on_part_answered(sent, result);
      return;
    case Sent::What::kAsk: {
      const auto running = running_.find(sent.round);
      if (running == running_.end() || running->second.id != sent.id) return;
      if (is_out_of_reach(result) && needs(running->second, sent.to)) {
        end(sent.round,
            unavailable("member '{}' was lost in round '{}': {}", sent.to, sent.round.name,
                        result.status.message()),
            {sent.to}, /*notifies_others=*/true);
        return;
      }
      if (result.kind != CallResult::Kind::kAnswer) return;
      const Result<RoundWord> word = decode_round_word(result.payload);
      if (!word.ok()) return;
      running->second.words[sent.to] = *word;
      const std::string_view own = running->second.round->signature();
      if (running->second.is_asked_about() && !word->signature.empty() &&
          own.substr(0, kSignatureTextMax) != word->signature) {
        end_as_different(sent.round, sent.to, word->signature);
        return;
      }
      if (!word->ended.ok()) {
        std::vector<std::string> lost;
        if (!word->lost.empty()) lost.push_back(word->lost);
        end(sent.round, word->ended, lost, /*notifies_others=*/false);
      }
      return;
    }
    case Sent::What::kCompare: {
      const auto running = running_.find(sent.round);
      if (running == running_.end() || running->second.id != sent.id) return;
      const Result<RoundWord> word = result.kind == CallResult::Kind::kAnswer
                                         ? decode_round_word(result.payload)
                                         : Result<RoundWord>(result.status);
      if (word.ok() && word->signature.empty() && !word->ended.ok()) {
        // That member has noticed it first.
        end(sent.round, word->ended, {}, /*notifies_others=*/false);
        return;
      }
      end_as_different(sent.round, sent.to, word.ok() ? word->signature : std::string());
      return;
    }
    case Sent::What::kShare:
      if (sent.membership == current_.id) on_share_answer(result, now);
      return;
  }
}

void GroupCore::on_part_lost(const Sent& sent, const CallResult& result) {
  if (sent.id == 0 || sent.membership != current_.id) return;
  const bool has_failed = std::any_of(failed_.begin(), failed_.end(), [&](const Failed& failed) {
    return failed.round == sent.round;
  });
  if (has_failed) return;  // all members were told
  const Status status(has_lost_member(result) ? StatusCode::kUnavailable : result.status.code(),
                      format("a part of round '{}' from '{}' was lost: {}", sent.round.name,
                             member_.options().self.name, result.status.message()));
  note_failed(sent.round, status, {});
  abort_on(sent.to, sent.round, status, "");
}

void GroupCore::on_part_answered(const Sent& sent, const CallResult& result) {
  const auto running = running_.find(sent.round);
  if (running == running_.end() || running->second.id != sent.id) {
    if (result.kind != CallResult::Kind::kAnswer) on_part_lost(sent, result);
    return;
  }
  if (result.kind == CallResult::Kind::kAnswer) {
    if (sent.must_arrive) running->second.round->arrived();
    end_if_done(sent.round);
    return;
  }
  if (result.kind == CallResult::Kind::kRemoteError && result.error_type == kOtherData) {
    end_as_different(sent.round, sent.to, result.status.message());
    return;
  }
  if (!has_lost_member(result)) {
    const bool is_sent = result.kind == CallResult::Kind::kRemoteError;
    end(sent.round,
        Status(result.status.code(), format("round '{}' {} '{}': {}", sent.round.name,
                                            is_sent ? "failed on" : "could not be sent to", sent.to,
                                            result.status.message())),
        {}, /*notifies_others=*/true);
    return;
  }
  end(sent.round,
      unavailable("member '{}' was lost in round '{}': {}", sent.to, sent.round.name,
                  result.status.message()),
      {sent.to}, /*notifies_others=*/true);
}

// --- What differs.

void GroupCore::compare(const RoundKey& key, RoundId id, const std::string& with, TimePoint now) {
  RoundMessage message;
  message.kind = RoundMessageKind::kAsk;
  message.membership = current_.id;
  message.round = key;
  message.part = 1;
  Sent sent;
  sent.what = Sent::What::kCompare;
  sent.round = key;
  sent.id = id;
  sent.to = with;
  call(with, function_, encode(message), std::move(sent), now + kCompareMax);
}

void GroupCore::end_as_different(const RoundKey& key, const std::string& other,
                                 std::string_view signature) {
  const auto running = running_.find(key);
  if (running == running_.end()) return;
  const std::string difference =
      signature_difference(running->second.round->signature(), signature, other);
  end(key,
      invalid_argument("round '{}' of '{}' differs from that of '{}': {}", key.name,
                       member_.options().self.name, other, difference),
      {}, /*notifies_others=*/true);
}

}  // namespace reverie
