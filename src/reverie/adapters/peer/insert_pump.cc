// Tested in insert_pump_test.cc and tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/insert_pump.h"

#include <algorithm>

#include "reverie/base/random.h"

namespace reverie {
namespace {

using store_wire::StoreCall;

// The bounds of one message.
constexpr std::size_t kItemsMax = 1000;
constexpr std::size_t kMessageBytesMax = std::size_t{256} << 10;
// This much is sent although the server has not accepted the last message.
constexpr std::size_t kMessageBytesGood = std::size_t{64} << 10;
// With this many of its items, the server waits for a table; more would only wait there too.
constexpr std::size_t kUnderWayMax = store_wire::kItemsUnderWayMax / 2;
// Added to the limiter's time, for a server that does not answer at all.
constexpr Duration kInsertAnswerTime = std::chrono::seconds(2);

std::string name_of_session(std::uint64_t seed) {
  Random random(seed);
  return format("{:016x}{:016x}", random.next(), random.next());
}

std::size_t bytes_of(const Item& item) {
  std::size_t size = sizeof(insert_records::ItemHead);
  for (const Piece& piece : item.trajectory.pieces()) {
    size += piece.length * piece.chunk->schema().step_bytes();
  }
  return size;
}

}  // namespace

InsertPump::InsertPump(std::uint32_t number, std::uint64_t seed)
    : number_(number), session_(name_of_session(seed)) {}

std::string_view InsertPump::kept(std::string_view table) {
  const auto found = std::ranges::find(tables_, table);
  return found != tables_.end() ? *found : tables_.emplace_back(table);
}

std::uint64_t InsertPump::insert(const InsertRequest& request, TimePoint give_up_at, Done& done,
                                 Ended& ended) {
  MutexLock lock(mutex_);
  if (is_closed_) return 0;
  if (requests_.empty()) give_up_at_ = TimePoint::max();
  Request& made = requests_.emplace_back();
  made.first = next_number_;
  made.table =
      !tables_.empty() && tables_.front() == request.table ? tables_.front() : kept(request.table);
  made.deadline = request.deadline;
  if (!link_) made.deadline = std::max(made.deadline, Clock::system().now() + kConnectTime);
  made.done = std::move(done);
  made.one = std::move(request.items.front());
  made.size_bytes = bytes_of(made.one);
  for (Item& item : request.items.subspan(1)) {
    made.size_bytes += bytes_of(item);
    made.more.push_back(std::move(item));
  }
  const std::uint64_t first = next_number_;
  next_number_ += made.count();
  waiting_bytes_ += made.size_bytes;
  if (!link_) give_up_at_ = std::min(give_up_at_, give_up_at);
  if (made.deadline != TimePoint::max()) note_due(made.deadline);
  while (may_send()) send_some(ended);
  return first;
}

InsertPump::Request* InsertPump::find(std::uint64_t number) {
  auto place = std::ranges::upper_bound(requests_, number, {}, &Request::first);
  if (place == requests_.begin()) return nullptr;
  --place;
  return number < place->first + place->count() ? &*place : nullptr;
}

bool InsertPump::may_send(bool all) const {
  if (!link_ || next_ == requests_.size()) return false;
  if (!all && sent_ > taken_ && waiting_bytes_ < kMessageBytesGood) return false;
  return under_way_ < kUnderWayMax && link_->has_room();
}

// Sends one message, under the lock, so that messages have the order of the numbers. If the first
// request does not fit in one, it fails instead.
void InsertPump::send_some(Ended& ended) {
  // Requests that were withdrawn before they were sent leave gaps in the numbers.
  while (next_ < requests_.size() && !requests_[next_].is_open()) ++next_;
  if (next_ == requests_.size()) return;
  const TimePoint now = Clock::system().now();
  ledger_.begin(number_, requests_[next_].first, requests_.front().first);
  std::size_t count = 0;
  while (next_ < requests_.size() && requests_[next_].is_open() && count < kItemsMax &&
         ledger_.size_bytes() < kMessageBytesMax) {
    Request& request = requests_[next_];
    ledger_.mark();
    std::optional<Duration> timeout;
    if (request.deadline != TimePoint::max()) timeout = request.deadline - now;
    ledger_.add(request.one, request.table, /*begins=*/true, timeout);
    for (const Item& item : request.more) ledger_.add(item, request.table, false, {});
    if (!limits_.allow(ledger_.head_bytes(), ledger_.bulk_bytes())) {
      if (count == 0) return refuse(request, ended);
      ledger_.rewind();
      break;
    }
    count += request.count();
    waiting_bytes_ -= request.size_bytes;
    ++next_;
  }
  under_way_ += count;
  ++sent_;
  const FrameHeader header{FrameKind::kCall, static_cast<std::uint64_t>(StoreCall::kInsert), 0,
                           number_};
  link_->send(header, store_wire::message_of(ledger_.finish(limits_.bulk_bytes_max)));
}

void InsertPump::refuse(Request& request, Ended& ended) {
  const bool is_head = ledger_.head_bytes() > limits_.head_bytes_max;
  Status why = resource_exhausted(
      "the message of an insert for table '{}' would have {} bytes of {}, and its server accepts "
      "{}: insert less at once, or {}",
      request.table, is_head ? ledger_.head_bytes() : ledger_.bulk_bytes(),
      is_head ? "text and other values of varying size" : "arrays",
      is_head ? limits_.head_bytes_max : limits_.bulk_bytes_max,
      is_head ? "use protocol='grpc'" : "raise message_bytes of the server's limits");
  ledger_.rewind();
  ledger_.abandon();
  complete(request, std::move(why), ended);
  drop_done();
}

void InsertPump::pump(Ended& ended, bool all) {
  MutexLock lock(mutex_);
  while (may_send(all)) send_some(ended);
}

void InsertPump::connect(const std::shared_ptr<StoreLink>& link, const FrameLimits& limits,
                         Ended& ended) {
  MutexLock lock(mutex_);
  if (is_closed_) return;
  restart();
  link_ = link;
  limits_ = limits;
  open_writer();
  while (may_send()) send_some(ended);
}

void InsertPump::open_writer() {
  const FrameHeader header{FrameKind::kCall, static_cast<std::uint64_t>(StoreCall::kOpenWriter), 0,
                           number_};
  link_->send(header,
              store_wire::message_of(store_wire::write_note({number_, ++open_count_, session_})));
}

void InsertPump::restart() {
  ledger_.restart();
  next_ = 0;
  sent_ = taken_ = 0;
  under_way_ = 0;
  waiting_bytes_ = 0;
  for (Request& request : requests_) {
    request.confirmed_before = request.applied();
    request.confirmed = 0;
    if (request.is_open()) waiting_bytes_ += request.size_bytes;
  }
}

void InsertPump::disconnect(TimePoint give_up_at, Ended& ended) {
  MutexLock lock(mutex_);
  link_ = nullptr;
  for (Request& request : requests_) {
    if (!request.is_open() || request.ends_at == TimePoint::max()) continue;
    complete(request, request.ends_with, ended);
  }
  drop_done();
  restart();
  if (!requests_.empty()) give_up_at_ = std::min(give_up_at_, give_up_at);
}

void InsertPump::complete(Request& request, Status status, Ended& ended) {
  const auto index = static_cast<std::size_t>(
      std::ranges::lower_bound(requests_, request.first, {}, &Request::first) - requests_.begin());
  if (index < next_) {
    under_way_ -=
        std::min(under_way_, request.count() - std::min(request.confirmed, request.count()));
  } else {
    waiting_bytes_ -= request.size_bytes;
  }
  ended.emplace_back(std::exchange(request.done, nullptr),
                     InsertResult{std::move(status), request.applied()});
}

// Removes complete requests from the front.
void InsertPump::drop_done() {
  while (!requests_.empty() && !requests_.front().is_open()) {
    requests_.pop_front();
    if (next_ > 0) --next_;
  }
}

void InsertPump::on_inserted(const StoreLink& link, const store_wire::Inserted& inserted,
                             Ended& ended) {
  std::vector<Item> freed;
  MutexLock lock(mutex_);
  if (link_.get() != &link) return;
  give_up_at_ = TimePoint::max();
  taken_ = std::min(std::max(taken_, inserted.messages_taken), sent_);
  for (const auto& run : inserted.in) {
    std::uint64_t number = run.first;
    std::uint64_t left = run.count;
    while (left > 0) {
      Request* const request = find(number);
      if (request == nullptr) {
        // It was abandoned meanwhile; later ones may still be open.
        const auto next = std::ranges::upper_bound(requests_, number, {}, &Request::first);
        if (next == requests_.end() || next->first - number >= left) break;
        left -= next->first - number;
        number = next->first;
        continue;
      }
      const std::uint64_t count =
          std::min<std::uint64_t>(left, request->first + request->count() - number);
      left -= count;
      number += count;
      if (!request->is_open()) continue;
      request->confirmed = std::min<std::size_t>(request->confirmed + count, request->count());
      under_way_ -= std::min<std::size_t>(under_way_, count);
      if (request->confirmed == request->count()) {
        complete(*request, {}, ended);
      }
    }
  }
  for (const auto& failure : inserted.failed) {
    Request* const request = find(failure.first);
    if (request == nullptr || request->first != failure.first || !request->is_open()) continue;
    const bool is_taken_back =
        request->ends_at != TimePoint::max() && failure.status.code() == StatusCode::kCancelled;
    const std::size_t applied = std::min<std::size_t>(failure.applied, request->count());
    request->confirmed_before = std::max(request->confirmed_before, applied);
    complete(*request, is_taken_back ? request->ends_with : failure.status, ended);
  }
  const bool is_writer_ended = !inserted.ended.ok();
  // All that was sent: the server drops also what has not arrived yet.
  for (std::size_t i = 0; is_writer_ended && i < next_; ++i) {
    Request& request = requests_[i];
    if (!request.is_open()) continue;
    const bool is_taken_back = request.ends_at != TimePoint::max();
    complete(request, is_taken_back ? request.ends_with : inserted.ended, ended);
  }
  while (!requests_.empty() && !requests_.front().is_open()) {
    freed.push_back(std::move(requests_.front().one));
    requests_.pop_front();
    if (next_ > 0) --next_;
  }
  if (is_writer_ended) {
    restart();
    open_writer();
  }
  while (may_send()) send_some(ended);
}

void InsertPump::cancel(std::uint64_t number, const Status& status, TimePoint until, Ended& ended) {
  MutexLock lock(mutex_);
  Request* const request = find(number);
  if (request == nullptr || request->first != number || !request->is_open()) return;
  const auto place = std::ranges::lower_bound(requests_, number, {}, &Request::first);
  if (!link_ || static_cast<std::size_t>(place - requests_.begin()) >= next_) {
    complete(*request, status, ended);
    drop_done();
    return;
  }
  if (request->ends_at != TimePoint::max()) return;  // it was withdrawn already
  request->ends_at = until;
  request->ends_with = status;
  note_due(until);
  const FrameHeader header{FrameKind::kCall, static_cast<std::uint64_t>(StoreCall::kWithdraw), 0,
                           number_};
  link_->send(header, store_wire::message_of(store_wire::write_note({number_, number, {}})));
}

void InsertPump::close(const Status& status, Ended& ended) {
  std::deque<Request> requests;
  MutexLock lock(mutex_);
  is_closed_ = true;
  requests.swap(requests_);
  next_ = 0;
  for (Request& request : requests) {
    if (!request.is_open()) continue;
    ended.emplace_back(std::move(request.done), InsertResult{status, request.applied()});
  }
  if (link_) {
    const FrameHeader header{FrameKind::kCall, static_cast<std::uint64_t>(StoreCall::kEndWriter), 0,
                             number_};
    link_->send(header, store_wire::message_of(store_wire::write_note({number_, 0, {}})));
  }
  link_ = nullptr;
}

TimePoint InsertPump::next_due() {
  MutexLock lock(mutex_);
  return std::min(due_, link_ || requests_.empty() ? TimePoint::max() : give_up_at_);
}

bool InsertPump::is_connected() {
  MutexLock lock(mutex_);
  return link_ != nullptr;
}

bool InsertPump::empty() {
  MutexLock lock(mutex_);
  return requests_.empty();
}

TimePoint InsertPump::sweep(TimePoint now, const Status& why, Ended& ended) {
  MutexLock lock(mutex_);
  const bool gives_up = !link_ && now >= give_up_at_;
  if (due_ <= now || gives_up) {
    due_ = TimePoint::max();
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      Request& request = requests_[i];
      if (!request.is_open()) continue;
      if (gives_up) {
        complete(request, why, ended);
        continue;
      }
      const bool is_sent = link_ && i < next_;
      TimePoint due = request.ends_at;
      if (request.deadline != TimePoint::max()) {
        due = std::min(due, is_sent ? request.deadline + kInsertAnswerTime : request.deadline);
      }
      if (due > now) {
        note_due(due);
      } else if (request.ends_at <= now) {
        complete(request, request.ends_with, ended);
      } else {
        complete(request,
                 deadline_exceeded("the server took {} of {} items for table '{}' before the "
                                   "deadline",
                                   request.applied(), request.count(), request.table),
                 ended);
      }
    }
    drop_done();
    if (gives_up) give_up_at_ = TimePoint::max();
  }
  return std::min(due_, link_ || requests_.empty() ? TimePoint::max() : give_up_at_);
}

}  // namespace reverie
