// Tested in tests/integration/served_writer_test.cc and tests/integration/peer_store_test.cc.
#include "reverie/adapters/peer/served_writer.h"

#include <algorithm>
#include <utility>

namespace reverie {
namespace {

// Bytes of released chunks that waiting items still hold; beyond that, reading of the writer
// pauses.
constexpr std::size_t kReleasedBytesMax = std::size_t{64} << 20;
// Bytes of messages that wait while reading of their writer pauses.
constexpr std::size_t kUnreadBytesMax = std::size_t{128} << 20;

std::size_t bytes_of(const Payload& payload) {
  return payload.head.size() + payload.bulk_bytes();
}

}  // namespace

ServedWriter::ServedWriter(std::shared_ptr<PeerStore> store, std::weak_ptr<Owner> owner,
                           std::uint32_t number, std::string session_id)
    : store_(std::move(store)),
      owner_(std::move(owner)),
      number_(number),
      session_id_(std::move(session_id)),
      session_(store_->sessions->open(session_id_)),
      mirror_({.memory = store_->chunk_memory(),
               .names = [store = store_.get()](std::string_view table) -> const wire::ColumnNames& {
                 return store->find(table).names;
               },
               .kept_bytes_max = store_->kept_bytes_max,
               .in_flight = store_->in_flight,
               .codec = store_->codec}) {
  answer_.writer = number_;
}

ServedWriter::~ServedWriter() {
  if (store_->in_flight) store_->in_flight->give_back(released_bytes_);
}

bool ServedWriter::begin(std::uint64_t ordinal) {
  return session_->attach(shared_from_this(), ordinal);
}

// --- Its turn.

void ServedWriter::pause_reading() {
  MutexLock lock(mutex_);
  is_paused_ = true;
}

void ServedWriter::resume_reading() {
  {
    MutexLock lock(mutex_);
    is_paused_ = false;
    if (unread_.empty()) return;
  }
  if (const auto owner = owner_.lock()) {
    owner->post([self = shared_from_this()] { self->read_waiting(); });
  }
}

void ServedWriter::abort(const Status& why) {
  if (const auto owner = owner_.lock()) owner->end(why);
}

void ServedWriter::end() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_over_, true)) return;
  }
  withdraw_all();
  session_->leave(shared_from_this());
  store_->sessions->close(session_id_);
}

void ServedWriter::withdraw_all() {
  std::vector<RequestId> ids;
  {
    MutexLock lock(mutex_);
    for (const auto& [first, waiting] : waiting_) ids.push_back(waiting.id);
    unread_.clear();
    unread_bytes_ = 0;
  }
  // The last first, so that no later item overtakes an earlier one.
  std::ranges::reverse(ids);
  for (const RequestId id : ids) store_->service->cancel(id);
}

Status ServedWriter::refuse(const Status& why) {
  const auto owner = owner_.lock();
  const bool is_alone = why.code() != StatusCode::kDataLoss && owner && owner->ends_writers_alone();
  if (is_alone) {
    {
      MutexLock lock(mutex_);
      ended_ = why;
      is_reading_ = true;
    }
    withdraw_all();
    MutexLock lock(mutex_);
    is_reading_ = false;
  }
  answer();
  return is_alone ? Status() : why;
}

void ServedWriter::withdraw(std::uint64_t first) {
  RequestId id = 0;
  {
    MutexLock lock(mutex_);
    const auto found = waiting_.find(first);
    if (found == waiting_.end()) {
      if (!unread_.empty() && withdrawn_.size() < store_wire::kItemsUnderWayMax) {
        withdrawn_.insert(first);
      }
      return;
    }
    found->second.is_withdrawn = true;
    id = found->second.id;
  }
  store_->service->cancel(id);
}

// --- Messages.

Status ServedWriter::take(Payload payload) {
  Status status;
  {
    MutexLock lock(mutex_);
    if (is_over_ || !ended_.ok()) return {};
    if (is_held_back() || !unread_.empty()) {
      unread_bytes_ += bytes_of(payload);
      if (unread_bytes_ <= kUnreadBytesMax || unread_.empty()) {
        unread_.push_back(std::move(payload));
        return {};
      }
      status = resource_exhausted(
          "a writer sent {} bytes while its items wait for their tables; the bound is {}",
          unread_bytes_, kUnreadBytesMax);
    }
  }
  return status.ok() ? read(payload) : refuse(status);
}

void ServedWriter::read_waiting() {
  while (true) {
    Payload payload;
    {
      MutexLock lock(mutex_);
      if (unread_.empty()) withdrawn_.clear();
      if (is_over_ || is_held_back() || unread_.empty()) return;
      payload = std::move(unread_.front());
      unread_.pop_front();
      unread_bytes_ -= bytes_of(payload);
    }
    if (const Status status = read(payload); !status.ok()) return abort(status);
  }
}

Status ServedWriter::read(const Payload& payload) {
  REVERIE_ASSIGN_OR_RETURN(const insert_records::Head head, InsertMirror::head_of(payload));
  bool has_withdrawn = false;
  Status status;
  {
    MutexLock lock(mutex_);
    has_withdrawn = !withdrawn_.empty();
    if (waiting_items_ > store_wire::kItemsUnderWayMax) {
      status =
          resource_exhausted("a writer has {} items that wait for their tables; the bound is {}",
                             waiting_items_, store_wire::kItemsUnderWayMax);
    }
    is_reading_ = status.ok();
  }
  if (!status.ok()) return refuse(status);
  items_.clear();
  status = mirror_.take(payload, items_);
  if (status.ok() && !items_.empty()) status = take_numbers(head.first_number);
  if (status.ok() && session_->settle(head.settled_below)) {
    store_->service->settle(session_id_, head.settled_below);
  }
  // Consecutive requests of one item each, to one table and without limits, are inserted together,
  // except those that were withdrawn while they were not read.
  const auto is_wanted = [&](std::size_t i) {
    if (!has_withdrawn) return true;
    MutexLock lock(mutex_);
    return !withdrawn_.contains(head.first_number + i);
  };
  std::size_t at = 0;
  while (status.ok() && at < items_.size()) {
    std::size_t end = at + 1;
    while (end < items_.size() && !items_[end].begins) ++end;
    if (end == at + 1 && !items_[at].timeout && is_wanted(at)) {
      while (end < items_.size() && items_[end].begins && !items_[end].timeout && is_wanted(end) &&
             items_[end].table == items_[at].table &&
             (end + 1 == items_.size() || items_[end + 1].begins)) {
        ++end;
      }
      insert_at_once(at, end, head.first_number + at);
    } else {
      insert_request(at, end, head.first_number + at);
    }
    at = end;
  }
  items_.clear();
  const std::size_t released_bytes = mirror_.take_released_bytes();
  std::size_t free = released_bytes;
  {
    MutexLock lock(mutex_);
    if (!waiting_.empty() && released_bytes > 0) {
      releases_.push_back({waiting_.rbegin()->first, released_bytes});
      released_bytes_ += released_bytes;
      has_long_wait_ = released_bytes_ >= kReleasedBytesMax;
      free = 0;
    }
    is_reading_ = false;
    ++answer_.messages_taken;
  }
  if (free > 0 && store_->in_flight) store_->in_flight->give_back(free);
  if (!status.ok()) return refuse(status);
  answer();
  return {};
}

// A number that comes again would replace the request that waits under it.
Status ServedWriter::take_numbers(std::uint64_t first_number) {
  if (first_number < next_number_) {
    return data_loss("an insert begins with number {}; the next is {}", first_number, next_number_);
  }
  if (first_number > UINT64_MAX - items_.size()) {
    return data_loss("an insert of {} items begins with number {}; the last number is {}",
                     items_.size(), first_number, UINT64_MAX - 1);
  }
  next_number_ = first_number + items_.size();
  return {};
}

// Inserts requests of one item each, to one table.
void ServedWriter::insert_at_once(std::size_t begin, std::size_t end, std::uint64_t first_number) {
  run_.clear();
  std::size_t run_begin = begin;
  const auto flush = [&](std::size_t until) {
    std::size_t done = 0;
    if (!run_.empty()) {
      done = store_->service->insert_at_once(*items_[begin].table, run_);
      for (std::size_t i = 0; i < done; ++i) {
        session_->note_done(first_number + (run_begin - begin) + i, true);
      }
      store_->inserts.fetch_add(done, std::memory_order_relaxed);
      MutexLock lock(mutex_);
      if (done > 0) confirm(first_number + (run_begin - begin), done);
    }
    for (std::size_t i = done; i < run_.size(); ++i) {
      items_[run_begin + i].item = std::move(run_[i]);
      session_->note_done(first_number + (run_begin - begin) + i, false);
      insert_request(run_begin + i, run_begin + i + 1, first_number + (run_begin - begin) + i);
    }
    run_.clear();
    run_begin = until;
  };
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint64_t number = first_number + (i - begin);
    if (session_->begin(number)) {
      flush(i + 1);
      MutexLock lock(mutex_);
      confirm(number, 1);
      continue;
    }
    run_.push_back(std::move(items_[i].item));
  }
  flush(end);
}

// Inserts items [begin, end), which are of one request.
void ServedWriter::insert_request(std::size_t begin, std::size_t end, std::uint64_t first_number) {
  std::vector<Item> items;
  std::size_t known = 0;  // the first items, inserted by an earlier connection
  for (std::size_t i = begin; i < end; ++i) {
    const std::uint64_t number = first_number + (i - begin);
    if (items.empty() && session_->begin(number)) {
      ++known;
      continue;
    }
    if (!items.empty()) (void)session_->begin(number);
    items.push_back(std::move(items_[i].item));
  }
  const std::uint64_t first = first_number;
  const std::size_t count = end - begin;
  if (items.empty()) {
    MutexLock lock(mutex_);
    confirm(first, count);
    return;
  }
  bool is_withdrawn = false;
  {
    MutexLock lock(mutex_);
    is_withdrawn = withdrawn_.erase(first) > 0;
  }
  if (is_withdrawn) {
    for (std::size_t i = known; i < count; ++i) session_->note_done(first + i, false);
    MutexLock lock(mutex_);
    answer_.failed.push_back({first, known, cancelled("the insert was cancelled")});
    return;
  }
  {
    MutexLock lock(mutex_);
    waiting_[first] = {0, items.size(), false};
    waiting_items_ += items.size();
  }
  InsertRequest request;
  request.table = *items_[begin].table;
  request.items = items;
  request.numbers = {session_id_, first + known};
  if (items_[begin].timeout) request.deadline = store_->clock.now() + *items_[begin].timeout;
  const RequestId id = store_->service->insert(
      request, [self = shared_from_this(), first, known, count](InsertResult result) {
        result.applied += known;
        self->on_inserted(first, count, result);
      });
  if (id == 0) return;
  MutexLock lock(mutex_);
  const auto found = waiting_.find(first);
  if (found != waiting_.end()) found->second.id = id;
}

void ServedWriter::on_inserted(std::uint64_t first, std::size_t count, const InsertResult& result) {
  std::size_t released_bytes = 0;
  std::size_t before = 0;
  {
    MutexLock lock(mutex_);
    const auto found = waiting_.find(first);
    before = count - found->second.count;  // were inserted before
  }
  // An item that the log lacks is not confirmed to a writer that repeats it: it is inserted again,
  // which logs it, or tells the writer that the log has failed.
  const std::size_t in = result.is_unlogged ? 0 : result.applied;
  for (std::size_t i = before; i < count; ++i) session_->note_done(first + i, i < in);
  store_->inserts.fetch_add(result.applied - std::min(before, result.applied),
                            std::memory_order_relaxed);
  bool reads_on = false;
  {
    MutexLock lock(mutex_);
    const auto found = waiting_.find(first);
    // The store is closed: the connection ends, and the items go to the next server.
    const bool is_left =
        !found->second.is_withdrawn && result.status.code() == StatusCode::kCancelled;
    waiting_items_ -= found->second.count;
    waiting_.erase(found);
    while (!releases_.empty() &&
           (waiting_.empty() || releases_.front().last_number < waiting_.begin()->first)) {
      released_bytes += releases_.front().size_bytes;
      releases_.pop_front();
    }
    released_bytes_ -= released_bytes;
    if (released_bytes_ < kReleasedBytesMax) {
      reads_on = std::exchange(has_long_wait_, false) && !unread_.empty();
    }
    if (result.status.ok()) {
      confirm(first, count);
    } else if (!is_left || !ended_.ok()) {
      answer_.failed.push_back({first, result.applied, is_left ? ended_ : result.status});
    }
    answer_soon();
  }
  if (released_bytes > 0 && store_->in_flight) store_->in_flight->give_back(released_bytes);
  if (!reads_on) return;
  if (const auto owner = owner_.lock()) {
    owner->post([self = shared_from_this()] { self->read_waiting(); });
  }
}

// --- Answers.

void ServedWriter::confirm(std::uint64_t first, std::uint64_t count) {
  auto& in = answer_.in;
  if (!in.empty() && in.back().first + in.back().count == first) {
    in.back().count += count;
  } else {
    in.push_back({first, count});
  }
}

// Posts an answer, unless the message that is being read will send one. Many completions share an
// answer.
void ServedWriter::answer_soon() {
  if (is_reading_ || is_over_ || std::exchange(is_answer_posted_, true)) return;
  if (const auto owner = owner_.lock()) {
    owner->post([self = shared_from_this()] { self->answer(); });
  }
}

bool ServedWriter::is_waiting() {
  MutexLock lock(mutex_);
  return !waiting_.empty() || !unread_.empty();
}

void ServedWriter::answer() {
  store_wire::Inserted answer;
  {
    MutexLock lock(mutex_);
    is_answer_posted_ = false;
    // The last answer is sent once the withdrawn items are decided: some may be in.
    if (is_over_ || (!ended_.ok() && !waiting_.empty())) return;
    answer.ended = ended_;
    answer.writer = number_;
    answer.messages_taken = answer_.messages_taken;
    answer.in.swap(answer_.in);
    answer.failed.swap(answer_.failed);
  }
  if (const auto owner = owner_.lock()) owner->send_inserted(answer);
}

}  // namespace reverie
