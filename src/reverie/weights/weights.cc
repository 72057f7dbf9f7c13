#include "reverie/weights/weights.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <span>
#include <utility>

#include <unistd.h>

#include "reverie/base/fork.h"
#include "reverie/base/mutex.h"
#include "reverie/base/random.h"
#include "reverie/group/fields.h"
#include "reverie/group/membership.h"
#include "reverie/group/peer_turns.h"
#include "reverie/os/shared_memory.h"
#include "reverie/tensor/buffer.h"

namespace reverie {
namespace {

constexpr Duration kSourceRetry = std::chrono::milliseconds(50);
// A source whose memory could not be mapped so often in a row is on another host.
constexpr int kFailedMapsMax = 3;

// The first bytes of a version's memory; the head follows, and the bulk at the next multiple of its
// alignment.
struct VersionHeader {
  std::array<std::uint64_t, 2> nonce;
  std::uint64_t version;
  std::uint64_t head_bytes;
  std::uint64_t bulk_bytes;
};

std::size_t bulk_offset(std::uint64_t head_bytes) {
  return Payload::padded(sizeof(VersionHeader) + static_cast<std::size_t>(head_bytes));
}

// A version, and its memory where others of this host can map it.
struct HeldVersion {
  std::shared_ptr<const WeightsVersion> about;
  std::shared_ptr<const SharedMemory> memory;
  std::array<std::uint64_t, 2> nonce{};
};

struct WeightsAsk {
  std::uint64_t at_least = 0;  // what is older is not wanted
  bool maps = false;
  bool waits = false;
};

enum class WeightsAnswerKind : std::uint8_t { kNothing = 0, kMemory = 1, kSent = 2 };

struct WeightsAnswer {
  WeightsAnswerKind kind = WeightsAnswerKind::kNothing;
  std::uint64_t version = 0;
  std::int64_t pid = 0;
  std::int64_t fd = -1;
  std::array<std::uint64_t, 2> nonce{};
  std::vector<std::byte> head;
};

Payload encode(const WeightsAsk& ask) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 3);
  write_number(writer, ask.at_least);
  write_number(writer, ask.maps ? 1 : 0);
  write_number(writer, ask.waits ? 1 : 0);
  return payload;
}

Result<WeightsAsk> decode_weights_ask(const Payload& payload) {
  FieldReader fields(payload);
  WeightsAsk ask;
  REVERIE_RETURN_IF_ERROR(fields.begin(3));
  REVERIE_ASSIGN_OR_RETURN(ask.at_least, fields.number());
  REVERIE_ASSIGN_OR_RETURN(ask.maps, fields.flag());
  REVERIE_ASSIGN_OR_RETURN(ask.waits, fields.flag());
  REVERIE_RETURN_IF_ERROR(fields.end());
  return ask;
}

Payload encode(const WeightsAnswer& answer) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kTuple, 7);
  write_number(writer, static_cast<std::uint64_t>(answer.kind));
  write_number(writer, answer.version);
  writer.integer(answer.pid);
  writer.integer(answer.fd);
  write_number(writer, answer.nonce[0]);
  write_number(writer, answer.nonce[1]);
  writer.bytes(answer.head);
  return payload;
}

Result<WeightsAnswer> decode_weights_answer(const Payload& payload) {
  FieldReader fields(payload);
  WeightsAnswer answer;
  REVERIE_RETURN_IF_ERROR(fields.begin(7));
  REVERIE_ASSIGN_OR_RETURN(const std::size_t kind, fields.size(2));
  answer.kind = static_cast<WeightsAnswerKind>(kind);
  REVERIE_ASSIGN_OR_RETURN(answer.version, fields.number());
  REVERIE_ASSIGN_OR_RETURN(answer.pid, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(answer.fd, fields.integer());
  REVERIE_ASSIGN_OR_RETURN(answer.nonce[0], fields.number());
  REVERIE_ASSIGN_OR_RETURN(answer.nonce[1], fields.number());
  REVERIE_ASSIGN_OR_RETURN(const auto head, fields.bytes());
  answer.head.assign(head.begin(), head.end());
  REVERIE_RETURN_IF_ERROR(fields.end());
  if (answer.fd < -1 || answer.fd > (1 << 30)) {
    return data_loss("a source of weights names the descriptor {}", answer.fd);
  }
  return answer;
}

Payload payload_of(const HeldVersion& held, bool maps) {
  WeightsAnswer answer;
  answer.version = held.about->version;
  if (maps && held.memory) {
    answer.kind = WeightsAnswerKind::kMemory;
    answer.pid = getpid();
    answer.fd = held.memory->fd();
    answer.nonce = held.nonce;
    return encode(answer);
  }
  answer.kind = WeightsAnswerKind::kSent;
  answer.head = held.about->value.head;
  Payload payload = encode(answer);
  payload.bulk = held.about->value.bulk;
  return payload;
}

// write(offset, bytes) for the pieces of the bulk, one behind the other.
template <typename Write>
Status gather_bulk(const Payload& value, Write write) {
  std::size_t at = 0;
  for (const BulkPiece& piece : value.bulk) {
    at = Payload::padded(at);
    REVERIE_RETURN_IF_ERROR(write(at, piece.bytes));
    at += piece.bytes.size();
  }
  return {};
}

HeldVersion held_of(std::uint64_t version, std::vector<std::byte> head, BulkPiece bulk) {
  auto about = std::make_shared<WeightsVersion>();
  about->version = version;
  about->value.head = std::move(head);
  if (!bulk.bytes.empty()) about->value.bulk.push_back(std::move(bulk));
  return {std::move(about), nullptr, {}};
}

// What lies in mapped memory.
Result<HeldVersion> version_in(SharedMemory mapped, const VersionHeader& expected) {
  auto memory = std::make_shared<const SharedMemory>(std::move(mapped));
  const std::span<std::byte> bytes = memory->bytes();
  VersionHeader header{};
  if (bytes.size() < sizeof(header)) return unavailable("the memory of the weights is another one");
  std::memcpy(&header, bytes.data(), sizeof(header));
  if (header.nonce != expected.nonce || header.version != expected.version ||
      header.head_bytes > bytes.size() || header.bulk_bytes > bytes.size() ||
      bulk_offset(header.head_bytes) + header.bulk_bytes > bytes.size()) {
    return unavailable("the memory of the weights is another one");
  }
  const auto* const head = bytes.data() + sizeof(header);
  HeldVersion held =
      held_of(header.version, {head, head + header.head_bytes},
              {bytes.subspan(bulk_offset(header.head_bytes), header.bulk_bytes), memory});
  held.memory = std::move(memory);
  held.nonce = header.nonce;
  return held;
}

// UNAVAILABLE where it cannot be seen from here.
Result<HeldVersion> mapped_version(const WeightsAnswer& answer) {
  REVERIE_ASSIGN_OR_RETURN(SharedMemory mapped,
                           SharedMemory::open_of(answer.pid, static_cast<int>(answer.fd),
                                                 SharedMemory::Mapping::kCopyOnWrite));
  return version_in(std::move(mapped), {answer.nonce, answer.version, 0, 0});
}

// In memory that others can map; what is written to it here is seen here alone, too.
Result<HeldVersion> shared_version(std::uint64_t version, const Payload& value) {
  const VersionHeader header{
      {random_seed(), random_seed()}, version, value.head.size(), value.bulk_bytes()};
  const std::size_t offset = bulk_offset(header.head_bytes);
  REVERIE_ASSIGN_OR_RETURN(
      const SharedMemory made,
      SharedMemory::create("reverie-weights",
                           offset + std::max<std::size_t>(header.bulk_bytes, 1)));
  REVERIE_RETURN_IF_ERROR(made.write(0, std::as_bytes(std::span(&header, 1))));
  REVERIE_RETURN_IF_ERROR(made.write(sizeof(header), value.head));
  REVERIE_RETURN_IF_ERROR(gather_bulk(value, [&](std::size_t at, std::span<const std::byte> bytes) {
    return made.write(offset + at, bytes);
  }));
  REVERIE_ASSIGN_OR_RETURN(
      SharedMemory mapped,
      SharedMemory::open_of(getpid(), made.fd(), SharedMemory::Mapping::kCopyOnWrite));
  return version_in(std::move(mapped), header);
}

Result<HeldVersion> copied_version(std::uint64_t version, const Payload& value, bool is_shared) {
  if (is_shared) {
    Result<HeldVersion> shared = shared_version(version, value);
    if (shared.ok()) return shared;
  }
  const std::size_t bulk_bytes = value.bulk_bytes();
  REVERIE_ASSIGN_OR_RETURN(Buffer buffer,
                           Allocator::heap().allocate(std::max<std::size_t>(bulk_bytes, 64)));
  auto kept = std::make_shared<Buffer>(std::move(buffer));
  REVERIE_RETURN_IF_ERROR(gather_bulk(value, [&](std::size_t at, std::span<const std::byte> bytes) {
    if (!bytes.empty()) std::memcpy(kept->data() + at, bytes.data(), bytes.size());
    return Status();
  }));
  return held_of(version, value.head, {kept->bytes().first(bulk_bytes), kept});
}

bool is_transient(StatusCode code) {
  return code == StatusCode::kUnavailable || code == StatusCode::kNotFound ||
         code == StatusCode::kDeadlineExceeded;
}

}  // namespace

class Weights::Impl : public std::enable_shared_from_this<Weights::Impl> {
 public:
  Impl(Peer* peer, const Options& options)
      : turns_(peer), options_(options), function_("reverie.weights." + options.name) {}

  const std::string& function() const { return function_; }
  Status check_fork() const { return fork_guard_.check("weights channel"); }

  VersionPtr held() const {
    MutexLock lock(mutex_);
    return held_.about;
  }

  Status publish(std::uint64_t version, const Payload& value) {
    if (const VersionPtr now = held(); now && version <= now->version) {
      return invalid_argument("version is {}; '{}' has {} here, and versions rise", version,
                              options_.name, now->version);
    }
    REVERIE_ASSIGN_OR_RETURN(HeldVersion made,
                             copied_version(version, value, options_.uses_shared_memory));
    take(std::move(made));
    return {};
  }

  void on_request(const Request& request) {
    const PeerTurn peer(turns_);
    if (!peer) return;
    const Result<WeightsAsk> ask = decode_weights_ask(request.message.payload);
    if (!ask.ok()) {
      return peer->fail(request.id, {ask.status().code(), "", ask.status().message(), ""});
    }
    HeldVersion held;
    {
      MutexLock lock(mutex_);
      if (held_.about && held_.about->version >= ask->at_least) {
        held = held_;
      } else if (ask->waits) {
        waiters_.push_back({request.id, *ask});
        return;
      }
    }
    peer->answer(request.id, held.about ? payload_of(held, ask->maps) : encode(WeightsAnswer{}));
  }

  void on_withdrawn(InboundId request) {
    MutexLock lock(mutex_);
    std::erase_if(waiters_, [&](const Waiter& waiter) { return waiter.request == request; });
  }

  // Asks the sources in turn, until one answers, for a version of `at_least`. With `waits`, it
  // answers once it has one.
  Result<VersionPtr> ask(Peer& peer, std::uint64_t at_least, bool waits, TimePoint deadline) {
    Status last = unavailable("weights '{}' have no source here; name the peers that have them",
                              options_.name);
    for (const std::string& source : options_.sources) {
      // What cannot be mapped is asked for again, to be sent.
      for (bool maps = may_map(source);; maps = false) {
        const CallResult result =
            peer.sync(source, function_, encode(WeightsAsk{at_least, maps, waits}),
                      {deadline, /*is_idempotent=*/true});
        if (result.kind != CallResult::Kind::kAnswer) {
          last = result.status;
          break;
        }
        REVERIE_ASSIGN_OR_RETURN(WeightsAnswer answer, decode_weights_answer(result.payload));
        if (answer.kind == WeightsAnswerKind::kNothing) return held();
        const bool is_memory = answer.kind == WeightsAnswerKind::kMemory;
        Result<HeldVersion> got =
            is_memory ? mapped_version(answer) : sent_version(std::move(answer), result.payload);
        if (is_memory) note_mapped(source, got.ok());
        if (got.ok()) {
          take(std::move(*got));
          return held();
        }
        last = got.status();
        if (!maps) break;
      }
    }
    return last;
  }

  Result<VersionPtr> wait_for(Peer& peer, std::uint64_t at_least, TimePoint deadline) {
    Clock& clock = Clock::system();
    while (true) {
      if (VersionPtr mine = held(); mine && mine->version >= at_least) return mine;
      REVERIE_RETURN_IF_ERROR(peer.check_open());
      const Result<VersionPtr> got = ask(peer, at_least, /*waits=*/true, deadline);
      if (got.ok()) continue;
      if (!options_.sources.empty() && !is_transient(got.status().code())) return got.status();
      // Until another thread has one, or it is worth to ask again.
      MutexLock lock(mutex_);
      if (held_.about && held_.about->version >= at_least) return held_.about;
      const TimePoint now = clock.now();
      if (now >= deadline) {
        return deadline_exceeded("weights '{}' have no version of {} or above yet", options_.name,
                                 at_least);
      }
      (void)clock.wait_until(changed_, mutex_, std::min(deadline, now + kSourceRetry));
    }
  }

  void close() {
    std::vector<Waiter> waiters;
    {
      MutexLock lock(mutex_);
      waiters.swap(waiters_);
    }
    {
      const PeerTurn peer(turns_);
      for (const Waiter& waiter : waiters) {
        if (peer) {
          peer->fail(waiter.request,
                     {StatusCode::kUnavailable, "", "these weights are served no more", ""});
        }
      }
    }
    turns_.close();
  }

 private:
  struct Waiter {
    InboundId request;
    WeightsAsk ask;
  };

  static Result<HeldVersion> sent_version(WeightsAnswer answer, const Payload& payload) {
    if (payload.bulk.size() > 1) return data_loss("weights came in {} pieces", payload.bulk.size());
    return held_of(answer.version, std::move(answer.head),
                   payload.bulk.empty() ? BulkPiece{} : payload.bulk.front());
  }
  // Memory may be gone since a newer version has come; but not each time.
  bool may_map(const std::string& source) {
    MutexLock lock(mutex_);
    return options_.uses_shared_memory && failed_maps_[source] < kFailedMapsMax;
  }
  void note_mapped(const std::string& source, bool is_good) {
    MutexLock lock(mutex_);
    int& failed = failed_maps_[source];
    failed = is_good ? 0 : failed + 1;
  }
  // The newest, if it is that; who waits for it gets it.
  void take(HeldVersion made) {
    std::vector<Waiter> ready;
    HeldVersion held;
    {
      MutexLock lock(mutex_);
      if (held_.about && held_.about->version >= made.about->version) return;
      std::swap(held_, made);  // the old one goes under no lock
      held = held_;
      std::erase_if(waiters_, [&](const Waiter& waiter) {
        if (held.about->version < waiter.ask.at_least) return false;
        ready.push_back(waiter);
        return true;
      });
      changed_.notify_all();
    }
    const PeerTurn peer(turns_);
    if (!peer) return;
    for (const Waiter& waiter : ready) {
      peer->answer(waiter.request, payload_of(held, waiter.ask.maps));
    }
  }

  const ForkGuard fork_guard_;
  PeerTurns turns_;
  const Options options_;
  const std::string function_;
  mutable Mutex mutex_;
  CondVar changed_;
  HeldVersion held_ REVERIE_GUARDED_BY(mutex_);
  std::vector<Waiter> waiters_ REVERIE_GUARDED_BY(mutex_);
  std::map<std::string, int> failed_maps_ REVERIE_GUARDED_BY(mutex_);  // in a row, by source
};

Weights::Weights(std::shared_ptr<Peer> peer, std::shared_ptr<Impl> impl)
    : peer_(std::move(peer)), impl_(std::move(impl)) {}

Result<std::unique_ptr<Weights>> Weights::make(std::shared_ptr<Peer> peer, const Options& options) {
  REVERIE_RETURN_IF_ERROR(peer->check_open());
  if (options.name.empty() || options.name.size() > kGroupNameMax) {
    return invalid_argument("the name of weights has {} bytes; it must have 1 to {}",
                            options.name.size(), kGroupNameMax);
  }
  if (std::find(options.sources.begin(), options.sources.end(), peer->name()) !=
      options.sources.end()) {
    return invalid_argument("sources names '{}', which is this peer; name others", peer->name());
  }
  auto impl = std::make_shared<Impl>(peer.get(), options);
  const std::weak_ptr<Impl> weak = impl;
  const Status defined = peer->define(impl->function(), [weak](const Request& request) {
    if (const auto weights = weak.lock()) weights->on_request(request);
  });
  if (!defined.ok()) {
    impl->close();
    if (defined.code() != StatusCode::kAlreadyExists) return defined;
    return already_exists("peer '{}' has weights '{}'; use those, or close() them first",
                          peer->name(), options.name);
  }
  peer->add_withdrawn([weak](InboundId request) {
    if (const auto weights = weak.lock()) weights->on_withdrawn(request);
  });
  return std::unique_ptr<Weights>(new Weights(std::move(peer), std::move(impl)));
}

Weights::~Weights() {
  close();
  // A forked child has none of the threads that wait in it: it takes nothing apart.
  if (!impl_->check_fork().ok()) leave_to_parent(impl_);
}

Status Weights::publish(std::uint64_t version, const Payload& value) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  REVERIE_RETURN_IF_ERROR(peer_->check_open());
  return impl_->publish(version, value);
}

Weights::VersionPtr Weights::held() const {
  return impl_->check_fork().ok() ? impl_->held() : nullptr;
}

Result<Weights::VersionPtr> Weights::pull(TimePoint deadline) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  const VersionPtr mine = impl_->held();
  return impl_->ask(*peer_, mine ? mine->version + 1 : 0, /*waits=*/false, deadline);
}

Result<Weights::VersionPtr> Weights::wait_for(std::uint64_t at_least, TimePoint deadline) {
  REVERIE_RETURN_IF_ERROR(impl_->check_fork());
  return impl_->wait_for(*peer_, at_least, deadline);
}

void Weights::close() {
  if (!impl_->check_fork().ok()) return;
  (void)peer_->undefine(impl_->function());
  impl_->close();
}

}  // namespace reverie
