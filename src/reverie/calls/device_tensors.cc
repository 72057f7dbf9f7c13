#include "reverie/calls/device_tensors.h"

#include <algorithm>
#include <span>
#include <system_error>

#include "reverie/base/start_thread.h"
#include "reverie/base/waiting.h"
#include "reverie/calls/own_loans.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

// How long the first tensor for a run waits until it is known whether that shares the host, and for
// the answer to the question.
constexpr Duration kProofMax = std::chrono::seconds(1);
constexpr Duration kAnswerMax = std::chrono::seconds(2);
constexpr Duration kLookPause = std::chrono::milliseconds(1);
// A no is asked again after this, since a program may begin to use a device; a question without an
// answer after the other.
constexpr Duration kNoFor = std::chrono::seconds(1);
constexpr Duration kSilentFor = std::chrono::seconds(10);
constexpr std::size_t kVerdictsMax = 4096;
constexpr std::size_t kReasonMax = 500;

bool is_within(const DeviceRange& range, std::uint64_t offset, std::size_t size_bytes) {
  return offset <= range.size_bytes && size_bytes <= range.size_bytes - offset;
}

Status outside(const DeviceRange& range, std::uint64_t offset, std::size_t size_bytes) {
  return data_loss("a received tensor has {} bytes at {} of an allocation of {} bytes", size_bytes,
                   offset, range.size_bytes);
}

}  // namespace

struct DeviceTensors::Opened {
  Opened(DeviceDriver& opener, int on, const DeviceRecord& record, const DeviceRange& found)
      : driver(opener), device(on), handle(record.handle), range(found) {}
  ~Opened() {
    if (fork_guard.check("device").ok()) driver.close(device, range.address);
  }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;

  const ForkGuard fork_guard;
  DeviceDriver& driver;
  const int device;
  const DeviceHandle handle;
  const DeviceRange range;
  // Guarded by the lock of the object that has it open.
  std::weak_ptr<const void> run;
  TimePoint used;
};

std::shared_ptr<DeviceTensors> DeviceTensors::make(const std::shared_ptr<Peer>& peer,
                                                   const Options& options) {
  std::shared_ptr<DeviceTensors> made(new DeviceTensors(peer, options));
  peer->serve_devices([weak = std::weak_ptr(made)](Request request) {
    if (const auto self = weak.lock()) self->on_question(std::move(request));
  });
  return made;
}

DeviceTensors::DeviceTensors(const std::shared_ptr<Peer>& peer, const Options& options)
    : peer_(peer),
      options_(options),
      process_(options.process.value_or(own_process_id())),
      driver_(*options.driver) {}

void DeviceTensors::close() {
  if (!fork_guard_.check("device").ok()) {
    // A thread of the parent may have held the loop's lock at the fork.
    leave_to_parent(std::move(timer_));
    return;
  }
  std::unique_ptr<IoThreads> threads;
  std::map<OpenedKey, std::shared_ptr<Opened>> opened;
  {
    MutexLock lock(mutex_);
    is_closed_ = true;
    threads = std::move(threads_);
    opened.swap(opened_);
  }
  if (!threads) return;
  threads->loop(0).run_and_wait([this] { timer_.reset(); });
  // A thread cannot join itself: what it ran has dropped the last owner.
  if (threads->loop(0).is_current()) return static_cast<void>(threads.release());
  threads->stop();
}

DeviceTensors::Counts DeviceTensors::counts() const {
  MutexLock lock(mutex_);
  Counts counts = counts_;
  counts.open_count = opened_.size();
  return counts;
}

Result<IoLoop*> DeviceTensors::loop() {
  MutexLock lock(mutex_);
  if (is_closed_) return cancelled("this peer is closed");
  if (!threads_) {
    try {
      threads_ = std::make_unique<IoThreads>(1);
    } catch (const std::system_error& error) {
      return no_thread("tensors of a device", error.what());
    }
  }
  return &threads_->loop(0);
}

void DeviceTensors::post(std::function<void()> work) {
  if (!fork_guard_.check("device").ok()) return;
  const Result<IoLoop*> on = loop();
  if (on.ok()) (void)(*on)->post(std::move(work));
}

// --- Sending.

bool DeviceTensors::can_lend(const Neighbour& receiver, int device, TimePoint deadline) {
  const auto peer = peer_.lock();
  const std::optional<DeviceUuid> uuid = driver_.uuid_of(device);
  if (!peer || !uuid || receiver.session == 0) return false;
  const std::pair key(receiver.session, *uuid);
  {
    MutexLock lock(mutex_);
    const auto known = verdicts_.find(key);
    // A run whose session has begun again refuses records until the proof of the host is, too.
    const bool is_known = known != verdicts_.end() && known->second.until > clock_.now();
    if (is_known && (receiver.is_proved || !known->second.is_yes)) return known->second.is_yes;
  }
  const TimePoint begin = clock_.now();
  const TimePoint patience = begin + (deadline - begin) / 2;  // the rest is for the message
  const TimePoint proof_due = std::min(patience, begin + kProofMax);
  Neighbour now = receiver;
  while (!now.is_proved && now.may_be_proved && clock_.now() < proof_due) {
    pause_until(clock_, clock_.now() + kLookPause);
    now = peer->neighbour(InboundId{receiver.session, 0});
  }
  if (!now.is_proved) {  // the peer knows when this changes, so it is not remembered here
    MutexLock lock(mutex_);
    counts_.refusal = format("'{}' shares no memory", receiver.name);
    return false;
  }
  const Verdict verdict = ask(now, device, *uuid, patience);
  MutexLock lock(mutex_);
  if (!verdict.is_yes) counts_.refusal = verdict.why;
  if (!verdict.is_kept) return verdict.is_yes;
  if (verdicts_.size() >= kVerdictsMax) verdicts_.clear();  // most are of runs that have ended
  verdicts_[key] = verdict;
  return verdict.is_yes;
}

DeviceTensors::Verdict DeviceTensors::ask(const Neighbour& receiver, int device,
                                          const DeviceUuid& uuid, TimePoint deadline) {
  const auto no = [this](std::string_view why, Duration lasts = kNoFor) {
    return Verdict{false, clock_.now() + lasts, std::string(why)};
  };
  const auto peer = peer_.lock();
  const Result<DeviceNonce> nonce = driver_.nonce(device);
  if (!peer || !nonce.ok()) return no(nonce.status().message());
  const Result<DeviceAllocation> allocation = driver_.export_memory(device, nonce->address);
  if (!allocation.ok()) return no(allocation.status().message());
  const DeviceRecord record{uuid, process_, allocation->id,
                            nonce->address - allocation->range.address, allocation->handle};
  // It stays lent until the answer.
  add_own_loan(process_, device, *allocation, receiver.secret);
  Payload payload;
  ValueWriter(payload).bytes(encode_device_record(record));
  const TimePoint until = clock_.now() + kAnswerMax;
  CallOptions options;
  options.deadline = std::min(deadline, until);
  const CallResult result =
      peer->sync(receiver.name, std::string(kDeviceFunction), std::move(payload), options);
  end_own_loan(process_, allocation->id, receiver.secret);
  if (result.kind == CallResult::Kind::kRemoteError &&
      result.status.code() == StatusCode::kNotFound) {
    return no(result.status.message(), Duration::max());  // it does not know the question
  }
  if (result.kind == CallResult::Kind::kFailed) {
    const bool is_late = result.status.code() == StatusCode::kDeadlineExceeded;
    Verdict failed = no(result.status.message(), is_late ? kSilentFor : kNoFor);
    failed.is_kept = !is_late || deadline >= until;  // the caller's time says nothing of a peer
    return failed;
  }
  if (result.kind != CallResult::Kind::kAnswer) return no(result.status.message());
  ValueReader reader(result.payload);
  const Result<ValueToken> token = reader.done() ? data_loss("no value") : reader.next();
  if (token.ok() && token->kind == ValueKind::kText) {
    const std::string_view why(reinterpret_cast<const char*>(token->bytes.data()),
                               token->bytes.size());
    return no(format("'{}' says: {}", receiver.name, why.substr(0, kReasonMax)));
  }
  const bool is_right = token.ok() && token->kind == ValueKind::kBytes &&
                        std::ranges::equal(token->bytes, nonce->bytes);
  if (!is_right) return no(format("'{}' has read another nonce", receiver.name));
  return {true, TimePoint::max()};
}

Result<DeviceTensors::Loan> DeviceTensors::lend(std::uint64_t session, int device,
                                                std::uint64_t address, std::size_t size_bytes) {
  struct Counted {
    Counted(std::shared_ptr<DeviceTensors> by, std::uint64_t allocation, std::uint64_t of_session,
            std::size_t bytes)
        : owner(std::move(by)), id(allocation), secret(of_session), size_bytes(bytes) {}
    Counted(const Counted&) = delete;
    Counted& operator=(const Counted&) = delete;
    ~Counted() {
      end_own_loan(owner->process_, id, secret);
      MutexLock lock(owner->mutex_);
      owner->counts_.lent_bytes -= size_bytes;
    }
    const std::shared_ptr<DeviceTensors> owner;
    const std::uint64_t id;
    const std::uint64_t secret;
    const std::size_t size_bytes;
  };
  const std::optional<DeviceUuid> uuid = driver_.uuid_of(device);
  if (!uuid) return refused(unavailable("device {} is not used by this process", device));
  const Result<DeviceAllocation> found = driver_.export_memory(device, address);
  if (!found.ok()) return refused(found.status());
  const DeviceAllocation& allocation = *found;
  const std::uint64_t offset = address - allocation.range.address;
  if (address < allocation.range.address || !is_within(allocation.range, offset, size_bytes)) {
    return refused(unavailable("a tensor spans several allocations of device {}", device));
  }
  {
    MutexLock lock(mutex_);
    if (counts_.lent_bytes > 0 && counts_.lent_bytes + size_bytes > options_.lent_bytes_max) {
      const Status full =
          resource_exhausted("{} bytes of devices are lent, and a tensor has {}; the bound is {}",
                             counts_.lent_bytes, size_bytes, options_.lent_bytes_max);
      counts_.refusal = full.message();
      return full;
    }
    counts_.lent_bytes += size_bytes;
    ++counts_.lent;
  }
  const std::uint64_t secret = secret_of(session);
  add_own_loan(process_, device, allocation, secret);
  return Loan{{*uuid, process_, allocation.id, offset, allocation.handle},
              std::make_shared<Counted>(shared_from_this(), allocation.id, secret, size_bytes)};
}

// --- Receiving.

Status DeviceTensors::refused(Status why) {
  MutexLock lock(mutex_);
  counts_.refusal = why.message();
  return why;
}

void DeviceTensors::on_question(Request request) {
  // On another thread: to look for the driver may wait for a library that is being loaded.
  const InboundId id = request.id;
  auto work = [self = shared_from_this(), request = std::move(request)] {
    const auto peer = self->peer_.lock();
    if (!peer) return;
    const auto nonce = self->read_nonce(request);
    Payload answer;
    ValueWriter writer(answer);
    nonce.ok() ? writer.bytes(*nonce) : writer.text(nonce.status().message());
    peer->answer(request.id, std::move(answer));
  };
  const Result<IoLoop*> on = loop();
  const Status& status = on.status();
  if (status.ok()) return static_cast<void>((*on)->post(std::move(work)));
  if (const auto peer = peer_.lock()) peer->fail(id, {status.code(), "", status.message(), ""});
}

Result<decltype(DeviceNonce::bytes)> DeviceTensors::read_nonce(const Request& question) {
  if (!question.message.payload.is_from_host)
    return data_loss("the sender of the question has not proved that it runs on this host");
  ValueReader reader(question.message.payload);
  const Result<ValueToken> token = reader.done() ? data_loss("no value") : reader.next();
  if (!token.ok() || token->kind != ValueKind::kBytes ||
      token->bytes.size() != kDeviceRecordBytes) {
    return data_loss("the question is not a record");
  }
  const DeviceRecord record = decode_device_record(token->bytes.first<kDeviceRecordBytes>());
  const std::optional<int> device = driver_.find(record.device);
  if (!device) return unavailable("this process does not use the device");
  decltype(DeviceNonce::bytes) nonce;
  REVERIE_ASSIGN_OR_RETURN(const DeviceSource source,
                           record.owner == process_
                               ? find_own(*device, record, nonce.size(), question.id.session)
                               : find_opened(*device, record, nonce.size(), peer_));
  REVERIE_RETURN_IF_ERROR(driver_.copy_to_host(*device, nonce, source.address));
  return nonce;
}

Result<DeviceSource> DeviceTensors::find(const Payload& message, const DeviceRecord& record,
                                         std::size_t size_bytes) {
  if (!message.is_from_host) {
    return data_loss(
        "a received tensor is in the memory of a device, but its sender has not proved that it "
        "runs on this host");
  }
  if (!message.receipt) return data_loss("a received tensor is in memory that was not lent");
  const std::optional<int> device = driver_.find(record.device);
  if (!device) {
    return unavailable("a received tensor is on a device that this process does not use");
  }
  const Receipt& receipt = *message.receipt;
  Result<DeviceSource> source = record.owner == process_
                                    ? find_own(*device, record, size_bytes, receipt.session())
                                    : find_opened(*device, record, size_bytes, receipt.life());
  if (source.ok()) {
    MutexLock lock(mutex_);
    ++counts_.found;
  }
  return source;
}

Status DeviceTensors::confirm(const Payload& message) {
  const auto peer = peer_.lock();
  const Receipt& receipt = *message.receipt;
  if (peer && !receipt.life().expired() && peer->is_kept(receipt.session())) return {};
  // Between two links, and over one that shares no memory, only the sender knows. If it answers,
  // and the session has not begun again, it has taken nothing back until then.
  const Neighbour sender = peer ? peer->neighbour(InboundId{receipt.session(), 0}) : Neighbour();
  if (sender.session != 0) {
    const CallOptions options{.deadline = clock_.now() + kAnswerMax};
    const CallResult answer = peer->sync(sender.name, std::string(kPingFunction), {}, options);
    if (answer.kind == CallResult::Kind::kAnswer && !receipt.life().expired()) return {};
  }
  return unavailable("the sender of a tensor has ended, or taken it back while it was copied");
}

std::uint64_t DeviceTensors::secret_of(std::uint64_t session) const {
  const auto peer = peer_.lock();
  return peer ? peer->neighbour(InboundId{session, 0}).secret : 0;
}

Result<DeviceSource> DeviceTensors::find_own(int device, const DeviceRecord& record,
                                             std::size_t size_bytes, std::uint64_t session) {
  REVERIE_ASSIGN_OR_RETURN(
      const DeviceRange range,
      find_own_loan(record.owner, device, record.allocation, secret_of(session)));
  if (!is_within(range, record.offset, size_bytes))
    return outside(range, record.offset, size_bytes);
  return DeviceSource{device, range.address + record.offset, nullptr};
}

Result<DeviceSource> DeviceTensors::find_opened(int device, const DeviceRecord& record,
                                                std::size_t size_bytes,
                                                const std::weak_ptr<const void>& run) {
  REVERIE_ASSIGN_OR_RETURN(std::shared_ptr<Opened> opened, open(device, record, run));
  const DeviceRange& range = opened->range;
  if (!is_within(range, record.offset, size_bytes))
    return outside(range, record.offset, size_bytes);
  return DeviceSource{device, range.address + record.offset, std::move(opened)};
}

Result<std::shared_ptr<DeviceTensors::Opened>> DeviceTensors::open(
    int device, const DeviceRecord& record, const std::weak_ptr<const void>& run) {
  const OpenedKey key(record.owner, record.allocation);
  MutexLock one_at_a_time(opening_);
  std::vector<std::shared_ptr<Opened>> gone;  // closed under no lock of the cache
  {
    MutexLock lock(mutex_);
    const auto known = opened_.find(key);
    if (known != opened_.end()) {
      Opened& found = *known->second;
      if (found.device == device && found.handle == record.handle) {
        found.run = run;
        found.used = clock_.now();
        return known->second;
      }
      gone.push_back(std::move(known->second));
      opened_.erase(known);
    }
  }
  gone.clear();
  Result<DeviceRange> range = driver_.open(device, record.handle);
  if (!range.ok()) {
    // Allocations that their owner has freed may be in the way.
    {
      MutexLock lock(mutex_);
      gone = take_stale(Duration::zero());
    }
    if (gone.empty()) return range.status();
    gone.clear();
    range = driver_.open(device, record.handle);
    if (!range.ok()) return range.status();
  }
  auto opened = std::make_shared<Opened>(driver_, device, record, *range);
  {
    MutexLock lock(mutex_);
    if (is_closed_) return cancelled("this peer is closed");
    opened->run = run;
    opened->used = clock_.now();
    if (opened_.size() >= options_.open_count_max) gone = take_stale(options_.open_for);
    if (opened_.size() >= options_.open_count_max) {
      const auto oldest = std::ranges::min_element(
          opened_, {}, [](const auto& entry) { return entry.second->used; });
      gone.push_back(std::move(oldest->second));
      opened_.erase(oldest);
    }
    opened_[key] = opened;
  }
  watch_open();
  return opened;
}

std::vector<std::shared_ptr<DeviceTensors::Opened>> DeviceTensors::take_stale(Duration open_for) {
  std::vector<std::shared_ptr<Opened>> stale;
  const TimePoint now = clock_.now();
  for (auto entry = opened_.begin(); entry != opened_.end();) {
    const Opened& opened = *entry->second;
    if (now - opened.used < open_for && !opened.run.expired()) {
      ++entry;
      continue;
    }
    stale.push_back(std::move(entry->second));
    entry = opened_.erase(entry);
  }
  return stale;
}

void DeviceTensors::watch_open() {
  {
    MutexLock lock(mutex_);
    if (std::exchange(is_watching_, true)) return;
  }
  const Result<IoLoop*> on = loop();
  const bool is_posted = on.ok() && (*on)->post([weak = weak_from_this()] {
    if (const auto self = weak.lock()) self->look_at_open();
  });
  if (is_posted) return;
  MutexLock lock(mutex_);
  is_watching_ = false;  // the next allocation tries again
}

void DeviceTensors::look_at_open() {
  std::vector<std::shared_ptr<Opened>> gone;
  {
    MutexLock lock(mutex_);
    gone = take_stale(options_.open_for);
    is_watching_ = !opened_.empty() && !is_closed_;
    if (!is_watching_) return;
  }
  gone.clear();
  const Result<IoLoop*> on = loop();
  if (!on.ok()) return;
  if (!timer_) timer_ = std::make_unique<LoopTimer>(**on);
  timer_->start(options_.open_for / 4, [this] { look_at_open(); });
}

}  // namespace reverie
