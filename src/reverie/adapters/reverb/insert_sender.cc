#include "reverie/adapters/reverb/insert_sender.h"

#include <algorithm>
#include <string_view>

#include "reverie/reverb_wire/requests.h"

namespace reverie {
namespace {

constexpr Duration kPauseMin = std::chrono::milliseconds(10);
constexpr Duration kPauseMax = std::chrono::seconds(1);
// A stream that lived so long was no failure.
constexpr Duration kLifeGood = std::chrono::seconds(2);
// Items of one message.
constexpr std::size_t kItemsMax = 1000;

GrpcPayload payload_of(std::vector<ChunkSender::Due>& chunks, std::span<const wire::WireItem> items,
                       std::span<const std::uint64_t> keep_keys) {
  std::vector<wire::Bytes> bytes;
  bytes.reserve(chunks.size());
  for (const ChunkSender::Due& due : chunks) bytes.push_back(due.bytes);
  wire::PiecedMessage message = wire::write_insert_request(bytes, items, keep_keys);
  const auto own = std::make_shared<const std::string>(std::move(message.own));
  const wire::Bytes all = wire::bytes_of(*own);
  GrpcPayload payload;
  std::size_t at = 0;
  for (std::size_t i = 0; i < message.pieces.size(); ++i) {
    const wire::PiecedMessage::Piece& piece = message.pieces[i];
    if (piece.at > at) payload.append_borrowed(all.subspan(at, piece.at - at));
    at = piece.at;
    if (chunks[i].owner) {
      payload.append(piece.bytes, std::move(chunks[i].owner));
    } else {
      payload.append(piece.bytes, std::move(chunks[i].chunk));
    }
  }
  if (all.size() > at) payload.append_borrowed(all.subspan(at));
  payload.keep(own);
  return payload;
}

}  // namespace

// One call. Its events find the sender that it belongs to, and are ignored once that has another.
class InsertSender::Stream final : public GrpcClientEvents,
                                   public std::enable_shared_from_this<Stream> {
 public:
  explicit Stream(std::shared_ptr<InsertSender> sender) : sender_(std::move(sender)) {}

  void on_message(Ref<GrpcMessage> message) override {
    const auto keys = wire::read_insert_response(message->bytes());
    if (!keys.ok()) {
      sender_->on_end(shared_from_this(), internal_error("{}", keys.status().message()));
      return;
    }
    sender_->on_keys(shared_from_this(), *keys);
  }
  void on_room() override {
    Ended ended;
    {
      MutexLock lock(sender_->mutex_);
      sender_->write(ended);
    }
    tell(ended);
  }
  void on_end(const Status& status) override { sender_->on_end(shared_from_this(), status); }

  std::shared_ptr<GrpcClientCall> call;

 private:
  const std::shared_ptr<InsertSender> sender_;
};

void InsertSender::tell(Ended& ended) {
  for (auto& [done, result] : ended) done(std::move(result));
}

void InsertSender::insert(RequestId id, InsertRequest request, Done done) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    enlist(id, request, std::move(done));
    write(ended);
  }
  tell(ended);
}

void InsertSender::enlist(RequestId id, InsertRequest& request, Done done) {
  Request& made = requests_[id];
  made.items.assign(std::make_move_iterator(request.items.begin()),
                    std::make_move_iterator(request.items.end()));
  made.is_confirmed.resize(made.items.size());
  made.deadline = request.deadline;
  made.done = std::move(done);
  for (std::size_t i = 0; i < made.items.size(); ++i) {
    to_write_.push_back({id, i});
    unconfirmed_.emplace(made.items[i].key, Place{id, i});
  }
  if (request.deadline != TimePoint::max()) {
    made.timer = timers_.schedule(
        request.deadline, [self = shared_from_this(), id, count = made.items.size()] {
          self->cancel(id, deadline_exceeded("the server took fewer than {} items for table '{}' "
                                             "before the deadline",
                                             count, self->table_));
        });
  }
}

void InsertSender::begin_stream() {
  auto stream = std::make_shared<Stream>(shared_from_this());
  chunks_.restart();
  to_write_.clear();
  for (const auto& [key, place] : unconfirmed_) to_write_.push_back(place);
  std::ranges::sort(to_write_, [](const Place& a, const Place& b) {
    return std::pair(a.request, a.index) < std::pair(b.request, b.index);
  });
  stream_ = stream;
  stream_since_ = clock_.now();
  stream->call = client_.start(std::string(wire::kServicePath) + "InsertStream", {}, stream);
}

void InsertSender::write(Ended& ended) {
  if (is_closed_ || retry_timer_ != 0) return;
  if (!stream_) {
    if (unconfirmed_.empty()) return;
    begin_stream();
  }
  while (!to_write_.empty() && stream_->call->has_room()) {
    if (const Status status = write_some(); !status.ok()) {
      complete_all(status, ended);
      drop_stream();
      return;
    }
  }
}

Status InsertSender::write_some() {
  std::vector<wire::WireItem> items;
  while (!to_write_.empty() && items.size() < kItemsMax) {
    const Place place = to_write_.front();
    to_write_.pop_front();
    const Item& item = requests_.at(place.request).items[place.index];
    items.push_back(chunks_.add(item, table_, item.priority.value_or(1.0)));
  }
  REVERIE_ASSIGN_OR_RETURN(std::vector<ChunkSender::Due> due, chunks_.take_due());
  stream_->call->write(payload_of(due, items, chunks_.keep_keys()));
  return {};
}

void InsertSender::on_keys(const std::shared_ptr<Stream>& stream,
                           const std::vector<ItemKey>& keys) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    if (stream_ != stream) return;
    for (const ItemKey key : keys) {
      const auto found = unconfirmed_.find(key);
      if (found == unconfirmed_.end()) continue;
      const Place place = found->second;
      unconfirmed_.erase(found);
      Request& request = requests_.at(place.request);
      chunks_.release(request.items[place.index]);
      request.is_confirmed[place.index] = true;
      if (++request.confirmed == request.items.size()) complete(place.request, {}, ended);
    }
  }
  tell(ended);
}

void InsertSender::complete(RequestId id, const Status& status, Ended& ended) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  Request& request = found->second;
  if (request.timer != 0) timers_.cancel(request.timer, request.deadline);
  ended.emplace_back(std::move(request.done), InsertResult{status, request.confirmed});
  for (std::size_t i = 0; i < request.items.size(); ++i) {
    if (request.is_confirmed[i]) continue;
    const auto [begin, end] = unconfirmed_.equal_range(request.items[i].key);
    for (auto place = begin; place != end; ++place) {
      if (place->second.request == id && place->second.index == i) {
        unconfirmed_.erase(place);
        break;
      }
    }
  }
  std::erase_if(to_write_, [id](const Place& place) { return place.request == id; });
  requests_.erase(found);
}

void InsertSender::complete_all(const Status& status, Ended& ended) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  std::ranges::sort(ids);
  for (const RequestId id : ids) complete(id, status, ended);
  chunks_.clear();
}

void InsertSender::drop_stream() {
  if (stream_) stream_->call->cancel();
  stream_.reset();
}

void InsertSender::cancel(RequestId id, const Status& status) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    const auto found = requests_.find(id);
    if (found == requests_.end()) return;
    complete(id, status, ended);
    // What the server has of it goes with the stream; all others are written again.
    drop_stream();
    write(ended);
  }
  tell(ended);
}

void InsertSender::close(const Status& status) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    complete_all(status, ended);
    drop_stream();
  }
  tell(ended);
}

void InsertSender::on_end(const std::shared_ptr<Stream>& stream, const Status& status) {
  Ended ended;
  {
    MutexLock lock(mutex_);
    if (stream_ != stream) return;  // it was given up before
    drop_stream();
    const bool is_passing = status.ok() || status.code() == StatusCode::kUnavailable ||
                            status.code() == StatusCode::kCancelled;
    if (!is_passing) {
      complete_all(status, ended);
    } else if (!requests_.empty()) {
      try_later();
    }
  }
  tell(ended);
}

void InsertSender::try_later() {
  if (is_closed_ || retry_timer_ != 0) return;
  if (clock_.now() - stream_since_ >= kLifeGood) pause_ = Duration::zero();
  pause_ = pause_ == Duration::zero() ? kPauseMin : std::min(2 * pause_, kPauseMax);
  retry_timer_ = timers_.schedule(clock_.now() + pause_, [self = shared_from_this()] {
    Ended ended;
    {
      MutexLock lock(self->mutex_);
      self->retry_timer_ = 0;
      self->write(ended);
    }
    tell(ended);
  });
}

}  // namespace reverie
