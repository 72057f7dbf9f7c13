#include "reverie/net/ucx_connection.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include <asio/io_context.hpp>
#include <asio/posix/stream_descriptor.hpp>

#include "reverie/base/random.h"
#include "reverie/net/keyed_hash.h"
#include "reverie/net/ucx_worker.h"

namespace reverie {
namespace {

// What one side may send beyond what the other has read, and so the most that each of them holds.
constexpr std::size_t kWindow = std::size_t{1} << 20;
constexpr std::size_t kReadStep = kWindow / 4;  // the reader says so after this many bytes
constexpr std::size_t kUcxAddressMax = std::size_t{16} << 10;
constexpr std::size_t kEarlyMax = 64;  // messages that overtook others
// How long bytes may take that were sent before the other side hung up, and how long the socket may
// take to say so.
constexpr Duration kRestMax = std::chrono::seconds(5);
constexpr Duration kEndMax = std::chrono::milliseconds(500);
// A connection that is destroyed holds up its loop for this long at most.
constexpr Duration kUcxFlushMax = std::chrono::milliseconds(100);
// UCX's shared memory does not say when a full queue has room again.
constexpr Duration kRetryAfter = std::chrono::milliseconds(1);

constexpr std::array<char, 8> kOfferMagic = {'R', 'v', 'U', 'c', 'x', '1', '\n', '\0'};

// Before the address of the worker. Numbers are little-endian, as all of the wire.
struct Offer {
  std::array<char, 8> magic = kOfferMagic;
  UcxKey key{};
  std::uint64_t address_size = 0;
  KeyedHash hash{};  // of the address, so that UCX reads none that arrived damaged
};
static_assert(sizeof(Offer) == 64);

enum class ControlKind : std::uint64_t { kRead = 1, kEnd = 2 };

struct Control {
  ControlKind kind;
  std::uint64_t total;  // bytes of the stream
};
static_assert(sizeof(Control) == 16);

KeyedHash hash_of(const UcxKey& key, std::span<const std::byte> address) {
  char text[sizeof(UcxKey)];
  std::memcpy(text, key.data(), sizeof(text));
  return keyed_hash({text, sizeof(text)}, address);
}

// Bytes in order: appended at one end, taken from the other.
class ByteQueue {
 public:
  static constexpr std::size_t kKeptBytes = 4096;

  bool empty() const { return begin_ == bytes_.size(); }
  std::span<const std::byte> bytes() const { return std::span(bytes_).subspan(begin_); }
  void append(std::span<const std::byte> more) {
    const bool needs_room = bytes_.size() + more.size() > bytes_.capacity();
    if (empty() || needs_room) {
      bytes_.erase(bytes_.begin(), bytes_.begin() + static_cast<std::ptrdiff_t>(begin_));
      begin_ = 0;
    }
    bytes_.insert(bytes_.end(), more.begin(), more.end());
  }
  void drop(std::size_t size) { begin_ += size; }
  // Gives memory back that an idle connection does not need.
  void rest() {
    if (!empty() || bytes_.capacity() <= kKeptBytes) return;
    bytes_ = {};
    begin_ = 0;
  }

 private:
  std::vector<std::byte> bytes_;
  std::size_t begin_ = 0;
};

class UcxConnection final : public Connection, private ConnectionEvents {
 public:
  UcxConnection(std::unique_ptr<Connection> inner, bool is_first, const UcxOptions& options)
      : inner_(std::move(inner)),
        is_first_(is_first),
        answer_max_(options.answer_max),
        key_{random_seed(), random_seed()},
        timer_(inner_->loop()),
        retry_timer_(inner_->loop()) {
    inner_->set_events(this);
    auto worker = UcxWorker::make(
        options, inner_->is_peer_local(), key_,
        {[this](std::uint64_t offset, std::span<const std::byte> bytes) { take(offset, bytes); },
         [this](const Status& why) { lose_soon(why); }});
    if (!worker.ok()) {
      lose(worker.status());
      return;
    }
    worker_ = std::move(*worker);
    watch_ = std::make_shared<Watch>(*this, worker_->event_descriptor());
    timer_.start(answer_max_, [this] {
      lose(unavailable("{} did not answer the offer of UCX within {} s", peer(),
                       to_seconds(answer_max_)));
    });
    if (is_first_) offer();
    inner_->want_read();
  }

  ~UcxConnection() override {
    *alive_ = false;
    if (is_open_ && lost_.ok() && !their_total_) {
      say({ControlKind::kEnd, sent_});
      worker_->flush(kUcxFlushMax);
    }
    if (watch_) watch_->end();
    worker_.reset();  // its last events use the other members
  }

  IoLoop& loop() override { return inner_->loop(); }
  void set_events(ConnectionEvents* events) override { events_ = events; }

  IoResult read(std::span<std::byte> into) override {
    if (in_.empty() && is_open_ && lost_.ok()) worker_->progress();
    const std::size_t size = std::min(into.size(), in_.bytes().size());
    if (size > 0) {
      std::memcpy(into.data(), in_.bytes().data(), size);
      in_.drop(size);
      read_ += size;
      if (read_ - told_read_ >= kReadStep) tell_read();
      return {.size_bytes = size};
    }
    if (has_all()) return {.is_end = true};
    return {.status = lost_};
  }

  IoResult write(std::span<const std::span<const std::byte>> pieces) override {
    if (!lost_.ok()) return {.status = lost_};
    if (their_total_) return {.status = unavailable("{} has closed the connection", peer())};
    IoResult result;
    std::size_t index = 0;
    std::size_t from = 0;
    while (is_open_ && index < pieces.size()) {
      const std::size_t room = std::min(window_left(), UcxWorker::kMessageMax);
      if (room == 0 || !worker_->can_send()) break;
      const std::span<std::byte> message = worker_->buffer();
      std::size_t size = 0;
      while (size < room && index < pieces.size()) {
        const auto piece =
            pieces[index].subspan(from).first(std::min(room - size, pieces[index].size() - from));
        if (!piece.empty()) std::memcpy(message.data() + size, piece.data(), piece.size());
        size += piece.size();
        from += piece.size();
        if (from < pieces[index].size()) break;
        ++index;
        from = 0;
      }
      if (size == 0) break;
      const Status status = worker_->send(sent_, size);
      if (!status.ok()) {
        lose(status);
        return {.size_bytes = result.size_bytes, .status = lost_};
      }
      sent_ += size;
      result.size_bytes += size;
    }
    if (is_open_ && worker_->pending() > 0) drive_later();
    return result;
  }

  void shut_down() override { inner_->shut_down(); }

  void want_read() override {
    is_reading_ = true;
    if (can_read()) drive_later();
  }
  void want_write() override {
    is_writing_ = true;
    if (can_write()) drive_later();
  }

  bool is_peer_local() const override { return inner_->is_peer_local(); }
  std::string peer() const override { return inner_->peer(); }

 private:
  // Waits for the worker's events. The wait holds it, so that a connection may be destroyed in an
  // event.
  struct Watch : std::enable_shared_from_this<Watch> {
    Watch(UcxConnection& connection, int fd)
        : owner(&connection), descriptor(connection.loop().context(), fd) {}

    void wait() {
      if (std::exchange(is_waiting, true)) return;
      descriptor.async_wait(asio::posix::stream_descriptor::wait_read,
                            [self = shared_from_this()](const asio::error_code&) {
                              self->is_waiting = false;
                              if (self->owner != nullptr) self->owner->drive();
                            });
    }
    // The descriptor is UCX's.
    void end() {
      owner = nullptr;
      descriptor.release();
    }

    UcxConnection* owner;
    asio::posix::stream_descriptor descriptor;
    bool is_waiting = false;
  };

  std::size_t window_left() const {
    return kWindow - static_cast<std::size_t>(sent_ - their_read_);
  }
  bool has_all() const { return their_total_ && received_ == *their_total_ && in_.empty(); }
  bool can_read() const { return !in_.empty() || has_all() || !lost_.ok(); }
  bool can_write() const {
    if (!lost_.ok() || their_total_) return true;
    return is_open_ && window_left() > 0 && worker_->can_send();
  }

  // --- The worker.

  // A message, from within the worker's progress.
  void take(std::uint64_t offset, std::span<const std::byte> bytes) {
    has_heard_ = true;
    if (bytes.empty()) return;  // the first one
    if (offset < received_ || offset - read_ > kWindow ||
        bytes.size() > kWindow - static_cast<std::size_t>(offset - read_)) {
      return lose(unavailable("{} sent bytes that it may not send yet, or again", peer()));
    }
    if (offset != received_) {
      if (early_.size() >= kEarlyMax) {
        return lose(unavailable("{}: too many messages overtook another", peer()));
      }
      early_.emplace(offset, std::vector(bytes.begin(), bytes.end()));
      return;
    }
    in_.append(bytes);
    received_ += bytes.size();
    if (early_.empty()) return;
    const auto next = early_.begin();
    if (next->first > received_) return;
    const auto node = early_.extract(next);
    take(node.key(), node.mapped());
  }

  // Progress, events, and the next wait.
  void drive() {
    const std::shared_ptr<bool> alive = alive_;
    is_drive_posted_ = false;
    if (!worker_ || !lost_.ok()) return tell(*alive);
    worker_->progress();
    tell(*alive);
    if (!*alive || !lost_.ok()) return;
    if (!worker_->arm()) return drive_later();
    // Arming calls back for messages whose sending has ended.
    if ((is_reading_ && can_read()) || (is_writing_ && can_write())) return drive_later();
    if (worker_->pending() > 0) retry_later();
    in_.rest();
    watch_->wait();
  }

  void tell(const bool& alive) {
    if (is_reading_ && can_read()) {
      is_reading_ = false;
      events_->on_readable();
      if (!alive) return;
    }
    if (is_writing_ && can_write()) {
      is_writing_ = false;
      events_->on_writable();
    }
  }

  void drive_later() {
    if (std::exchange(is_drive_posted_, true)) return;
    loop().post([this, alive = alive_] {
      if (*alive) drive();
    });
  }

  void retry_later() {
    if (std::exchange(is_retrying_, true)) return;
    retry_timer_.start(kRetryAfter, [this] {
      is_retrying_ = false;
      drive();
    });
  }

  // --- The socket.

  void on_readable() override {
    const std::shared_ptr<bool> alive = alive_;
    std::array<std::byte, 4096> bytes;
    IoResult got;
    do {
      got = inner_->read(bytes);
      control_in_.append(std::span(bytes).first(got.size_bytes));
      if (lost_.ok()) read_control();
    } while (got.size_bytes > 0 && lost_.ok());
    if (got.is_end || !got.status.ok()) {
      end_of_socket();
    } else if (lost_.ok()) {
      inner_->want_read();
    }
    drive();
  }

  void on_writable() override {
    write_control();
    if (control_out_.empty() && read_ - told_read_ >= kReadStep) tell_read();
  }

  void end_of_socket() {
    // What the other process wrote before it ended may still be with UCX.
    while (worker_ && lost_.ok() && worker_->progress()) {
    }
    if (!their_total_) {
      lose(unavailable("the connection to {} was lost: its socket has ended", peer()));
    }
  }

  void offer() {
    Offer mine;
    mine.key = key_;
    mine.address_size = worker_->address().size();
    mine.hash = hash_of(key_, worker_->address());
    control_out_.append(std::as_bytes(std::span(&mine, 1)));
    control_out_.append(worker_->address());
    write_control();
  }

  void say(const Control& control) {
    control_out_.append(std::as_bytes(std::span(&control, 1)));
    write_control();
  }

  void tell_read() {
    if (!control_out_.empty()) return;  // on_writable() does
    told_read_ = read_;
    say({ControlKind::kRead, read_});
  }

  void write_control() {
    while (!control_out_.empty()) {
      const std::span<const std::byte> piece = control_out_.bytes();
      const IoResult result = inner_->write({&piece, 1});
      if (!result.status.ok()) return;  // the reader of the socket sees it too
      if (result.size_bytes == 0) return inner_->want_write();
      control_out_.drop(result.size_bytes);
    }
  }

  void read_control() {
    if (!is_open_ && !read_offer()) return;
    while (lost_.ok() && control_in_.bytes().size() >= sizeof(Control)) {
      Control said;
      std::memcpy(&said, control_in_.bytes().data(), sizeof(said));
      control_in_.drop(sizeof(said));
      if (said.kind == ControlKind::kRead && said.total >= their_read_ && said.total <= sent_) {
        their_read_ = said.total;
      } else if (said.kind == ControlKind::kEnd && !their_total_ && said.total >= received_) {
        their_total_ = said.total;
        if (received_ < said.total) wait_for_rest();
      } else {
        lose(unavailable("{} sent a malformed record about UCX", peer()));
      }
    }
  }

  // False: it has not arrived yet, or cannot be used.
  bool read_offer() {
    Offer theirs;
    const std::span<const std::byte> bytes = control_in_.bytes();
    if (bytes.size() < sizeof(theirs)) return false;
    std::memcpy(&theirs, bytes.data(), sizeof(theirs));
    if (theirs.magic != kOfferMagic || theirs.address_size == 0 ||
        theirs.address_size > kUcxAddressMax) {
      lose(
          unavailable("{} sent something else than an offer of UCX with an address of at most {} "
                      "bytes",
                      peer(), kUcxAddressMax));
      return false;
    }
    const auto size = static_cast<std::size_t>(theirs.address_size);
    if (bytes.size() < sizeof(theirs) + size) return false;
    const std::span<const std::byte> address = bytes.subspan(sizeof(theirs), size);
    const KeyedHash hash = hash_of(theirs.key, address);
    if (!is_equal_in_constant_time(hash, theirs.hash)) {
      lose(unavailable("{} sent a damaged address of UCX", peer()));
      return false;
    }
    const Status status = worker_->connect(address, theirs.key);
    control_in_.drop(sizeof(theirs) + size);
    if (!status.ok()) {
      lose(status);
      return false;
    }
    if (!is_first_) offer();
    is_open_ = true;
    // Shows the other side that UCX reaches it, which an address alone does not.
    const Status greeted = worker_->send(0, 0);
    if (!greeted.ok()) lose(greeted);
    timer_.start(answer_max_, [this] {
      if (!has_heard_) worker_->progress();  // the loop may be late itself
      if (has_heard_) return drive_later();
      lose(unavailable("nothing has come from {} over UCX within {} s", peer(),
                       to_seconds(answer_max_)));
    });
    drive_later();
    return greeted.ok();
  }

  // --- Ends.

  void lose(const Status& why) {
    if (!lost_.ok()) return;
    lost_ = why;
    timer_.cancel();
    retry_timer_.cancel();
    drive_later();
  }

  // From within the worker: an end of the other side, which the socket explains, or a loss.
  void lose_soon(const Status& why) {
    if (their_total_) return;  // wait_for_rest() has the timer
    timer_.start(kEndMax, [this, why] {
      if (!their_total_) lose(why);
    });
  }

  void wait_for_rest() {
    timer_.start(kRestMax, [this] {
      if (received_ == *their_total_) return;
      lose(unavailable("the connection to {} was lost: {} of {} bytes did not arrive", peer(),
                       *their_total_ - received_, *their_total_));
    });
  }

  const std::unique_ptr<Connection> inner_;
  const bool is_first_;
  const Duration answer_max_;
  const UcxKey key_;
  ConnectionEvents* events_ = nullptr;
  bool is_reading_ = false;
  bool is_writing_ = false;
  bool is_open_ = false;    // the other side's address is known
  bool has_heard_ = false;  // from the other side over UCX
  Status lost_;

  ByteQueue control_in_;
  ByteQueue control_out_;
  std::optional<std::uint64_t> their_total_;  // of the bytes that it sent, once it has ended

  // Offsets in the streams of bytes.
  std::uint64_t sent_ = 0;
  std::uint64_t their_read_ = 0;
  std::uint64_t received_ = 0;  // without a gap
  std::uint64_t read_ = 0;
  std::uint64_t told_read_ = 0;
  ByteQueue in_;
  std::map<std::uint64_t, std::vector<std::byte>> early_;

  std::unique_ptr<UcxWorker> worker_;
  std::shared_ptr<Watch> watch_;
  LoopTimer timer_;  // for the offer, the first message, or the end
  LoopTimer retry_timer_;
  bool is_drive_posted_ = false;
  bool is_retrying_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

Status check_ucx() {
  return {};
}

std::unique_ptr<Connection> make_ucx_connection(std::unique_ptr<Connection> inner, bool is_first,
                                                const UcxOptions& options) {
  return std::make_unique<UcxConnection>(std::move(inner), is_first, options);
}

}  // namespace reverie
