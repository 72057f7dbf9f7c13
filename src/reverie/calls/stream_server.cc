// Tested in stream_test.cc.
#include "reverie/calls/stream_server.h"

#include <map>
#include <set>
#include <utility>
#include <vector>

#include "reverie/calls/peer_turns.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

constexpr std::size_t kLostMax = 1024;
// Large, so that a caller that takes the integer of an ordinary function for a stream's number is
// told, and gets no other stream.
constexpr std::uint64_t kFirstStream = (std::uint64_t{1} << 61) + 0x5'7EA4'0000'0001;

// The answer to a call that comes while the server ends: as if that had been over before.
RemoteError no_streams() {
  return {StatusCode::kNotFound, "", "the peer does not serve this stream any more", ""};
}

}  // namespace

// --- One stream.

void ServedStream::set_changed(Changed changed) {
  auto other = std::make_shared<Changed>(std::move(changed));
  {
    MutexLock lock(mutex_);
    changed_.swap(other);
  }
  other.reset();  // what it holds is released under no lock
  tell();
}

bool ServedStream::has_room() const {
  MutexLock lock(mutex_);
  return core_.has_room();
}

Status ServedStream::put(Payload value) {
  StreamCore::Answers answers;
  {
    MutexLock lock(mutex_);
    if (core_.is_closed()) {
      return cancelled("'{}' has closed this stream or disconnected", caller_);
    }
    if (core_.is_over()) {
      return failed_precondition("this stream of '{}' has ended; no value can follow", caller_);
    }
    if (!core_.has_room()) {
      return resource_exhausted(
          "'{}' has no room for another value of this stream; put it when has_room()", caller_);
    }
    core_.put(std::move(value), answers);
  }
  carry_out(std::move(answers));
  return {};
}

void ServedStream::end(Payload result) {
  StreamCore::Answers answers;
  {
    MutexLock lock(mutex_);
    core_.end(std::move(result), answers);
  }
  carry_out(std::move(answers));
}

void ServedStream::fail(const RemoteError& error) {
  StreamCore::Answers answers;
  {
    MutexLock lock(mutex_);
    core_.fail(error, answers);
  }
  carry_out(std::move(answers));
}

bool ServedStream::is_closed() const {
  MutexLock lock(mutex_);
  return core_.is_closed();
}

std::optional<Payload> ServedStream::take() {
  StreamCore::Answers answers;
  std::optional<Payload> value;
  {
    MutexLock lock(mutex_);
    value = core_.take(answers);
  }
  carry_out(std::move(answers));
  return value;
}

bool ServedStream::is_finished() const {
  MutexLock lock(mutex_);
  return core_.is_finished();
}

void ServedStream::on_message(StreamMessage message, InboundId request) {
  StreamCore::Answers answers;
  {
    MutexLock lock(mutex_);
    switch (message.ask) {
      case StreamAsk::kNext:
        core_.want(message.number, request, answers);
        break;
      case StreamAsk::kSend:
        core_.send(message.number, std::move(message.value), request, answers);
        break;
      case StreamAsk::kFinish:
        core_.finish(message.number, request, answers);
        break;
      case StreamAsk::kWatch:
      case StreamAsk::kClose:
        break;  // the server's
    }
  }
  carry_out(std::move(answers));
  tell();
}

void ServedStream::on_close() {
  StreamCore::Answers answers;
  {
    MutexLock lock(mutex_);
    core_.close(answers);
  }
  carry_out(std::move(answers));
  tell();
}

void ServedStream::carry_out(StreamCore::Answers answers) {
  if (answers.empty()) return;
  const PeerTurn peer(*turns_);
  if (!peer) return;
  std::vector<Peer::Answer> given;
  for (StreamCore::Answer& answer : answers) {
    if (answer.error) {
      peer->fail(answer.request, *answer.error);
    } else {
      given.push_back({answer.request, std::move(answer.payload)});
    }
  }
  if (!given.empty()) peer->answer(std::move(given), /*copies_bulk=*/true);
}

// Calls back once for all that happens meanwhile, one thread at a time.
void ServedStream::tell() {
  const auto self = shared_from_this();
  while (true) {
    std::shared_ptr<Changed> changed;
    bool was_closed = false;  // if it is closed during the call, another call tells of that
    {
      MutexLock lock(mutex_);
      has_news_ = true;
      if (is_telling_ || !changed_) return;
      was_closed = core_.is_closed();
      is_telling_ = true;
      has_news_ = false;
      changed = changed_;
    }
    (*changed)(*this);
    changed.reset();
    std::shared_ptr<Changed> gone;  // what it holds is released under no lock
    MutexLock lock(mutex_);
    is_telling_ = false;
    if (was_closed && !has_news_) gone = std::move(changed_);
    if (!has_news_ || !changed_) return;
  }
}

// --- The server.

struct StreamServer::State : std::enable_shared_from_this<State> {
  struct Place {
    std::shared_ptr<ServedStream> stream;
    InboundId begun;
    TimePoint begun_at;
    bool is_watched = false;  // its end is noticed
  };
  using Watch = std::pair<std::uint64_t, std::uint64_t>;  // session and call

  State(Peer& peer, const Clock& now)
      : clock(now), turns(std::make_shared<PeerTurns>(&peer)), answerer(peer.answerer()) {}

  const Clock& clock;
  const std::shared_ptr<PeerTurns> turns;  // its streams may be used longer
  const Peer::Answerer answerer;           // for a call that comes while it ends
  mutable Mutex mutex;
  std::unordered_map<std::uint64_t, Place> streams REVERIE_GUARDED_BY(mutex);
  std::map<Watch, std::uint64_t> watches REVERIE_GUARDED_BY(mutex);
  std::set<std::uint64_t> lost_streams REVERIE_GUARDED_BY(mutex);  // the latest kLostMax
  std::uint64_t next REVERIE_GUARDED_BY(mutex) = kFirstStream;
  std::vector<std::string> functions REVERIE_GUARDED_BY(mutex);
  bool is_closed REVERIE_GUARDED_BY(mutex) = false;

  // Adds a stream; 0 if there are too many. Those that are not watched in time, or whose caller has
  // another connection by now, are closed.
  std::uint64_t add(const std::shared_ptr<ServedStream>& stream, InboundId begun) {
    std::vector<std::uint64_t> lost;
    std::uint64_t number = 0;
    {
      MutexLock lock(mutex);
      const TimePoint now = clock.now();
      for (const auto& [key, place] : streams) {
        if (place.is_watched) continue;
        const bool is_earlier =
            place.begun.session != begun.session && place.stream->caller() == stream->caller();
        if (is_earlier || now - place.begun_at > kWatchTime) lost.push_back(key);
      }
      lost_streams.insert(lost.begin(), lost.end());
      while (lost_streams.size() > kLostMax) lost_streams.erase(lost_streams.begin());
      if (!is_closed && streams.size() - lost.size() < kStreamsMax) {
        number = next++;
        streams[number] = {stream, begun, now, false};
      }
    }
    for (const std::uint64_t key : lost) drop(key);
    return number;
  }

  void begin(const Begin& begin, Request request) {
    const PeerTurn here(*turns);
    if (!here) return answerer.fail(request.id, no_streams());
    const std::shared_ptr<ServedStream> stream(new ServedStream(turns, request.caller));
    const InboundId id = request.id;
    const std::uint64_t number = add(stream, id);
    if (number == 0) {
      return here->fail(id, {StatusCode::kResourceExhausted, "",
                             format("peer '{}' serves {} streams already, or serves none now",
                                    here->name(), kStreamsMax),
                             ""});
    }
    begin(stream, std::move(request));
    // The caller has given up, so it will not watch the stream.
    if (!here->is_wanted(id)) return drop(number);
    Payload payload;
    ValueWriter(payload).integer(static_cast<std::int64_t>(number));
    here->answer(id, std::move(payload));
  }

  void serve(Request request) {
    const PeerTurn here(*turns);
    if (!here) return answerer.fail(request.id, no_streams());
    Result<StreamMessage> message = decode_stream_message(std::move(request.message.payload));
    if (!message.ok()) {
      return here->fail(request.id, {message.status().code(), "", message.status().message(), ""});
    }
    std::shared_ptr<ServedStream> stream;
    bool is_lost = false;
    bool is_number = false;
    {
      MutexLock lock(mutex);
      is_number = kFirstStream <= message->stream && message->stream < next;
      is_lost = lost_streams.contains(message->stream);
      const auto place = streams.find(message->stream);
      if (place != streams.end() && place->second.stream->caller() == request.caller) {
        stream = place->second.stream;
        if (message->ask == StreamAsk::kWatch) {
          place->second.is_watched = true;
          watches[{request.id.session, request.id.call}] = message->stream;
        }
      }
    }
    if (!is_number && message->ask == StreamAsk::kNext) {
      return here->fail(
          request.id,
          {StatusCode::kFailedPrecondition, "",
           format("{} is no stream's number; streams are served by StreamServer", message->stream),
           ""});
    }
    if (is_lost && message->ask == StreamAsk::kNext) {
      // Without an error the caller would take it for a stream without values.
      return here->fail(request.id, {StatusCode::kUnavailable, "",
                                     format("the stream's number was not used within {} s, so '{}' "
                                            "has closed the stream; begin it again",
                                            kWatchTime / std::chrono::seconds(1), here->name()),
                                     ""});
    }
    if (!stream) return here->answer(request.id, encode_stream_answer({.is_end = true}));
    if (message->ask == StreamAsk::kWatch) {
      if (!here->is_wanted(request.id)) withdraw(request.id);  // it was withdrawn just now
      return;
    }
    if (message->ask == StreamAsk::kClose) {
      drop(message->stream);
      return here->answer(request.id, encode_stream_answer({.is_end = true}));
    }
    stream->on_message(*std::move(message), request.id);
  }

  void withdraw(InboundId request) {
    std::uint64_t number = 0;
    {
      MutexLock lock(mutex);
      const auto watch = watches.find({request.session, request.call});
      if (watch == watches.end()) return;
      number = watch->second;
      watches.erase(watch);
    }
    drop(number);
  }

  void drop(std::uint64_t number) {
    std::shared_ptr<ServedStream> gone;
    {
      MutexLock lock(mutex);
      const auto place = streams.find(number);
      if (place == streams.end()) return;
      gone = std::move(place->second.stream);
      streams.erase(place);
    }
    gone->on_close();
  }
};

Result<std::unique_ptr<StreamServer>> StreamServer::make(const std::shared_ptr<Peer>& peer,
                                                         const Clock& clock) {
  const auto state = std::make_shared<State>(*peer, clock);
  const std::weak_ptr<State> weak = state;
  const auto serve = [weak, answerer = state->answerer](Request request) {
    if (const auto open = weak.lock()) return open->serve(std::move(request));
    answerer.fail(request.id, no_streams());
  };
  REVERIE_RETURN_IF_ERROR(peer->define(std::string(kStreamsFunction), serve));
  peer->add_withdrawn(weak, [weak](InboundId request) {
    if (const auto open = weak.lock()) open->withdraw(request);
  });
  return std::unique_ptr<StreamServer>(new StreamServer(peer, state));
}

StreamServer::~StreamServer() {
  if (!fork_guard_.check("stream server").ok()) {  // a thread of the parent may hold a lock
    leave_to_parent(std::move(state_));
    return;
  }
  std::unordered_map<std::uint64_t, State::Place> gone;
  std::vector<std::string> functions;
  {
    MutexLock lock(state_->mutex);
    state_->is_closed = true;
    gone.swap(state_->streams);
    functions.swap(state_->functions);
  }
  for (const std::string& function : functions) peer_->undefine(function);
  peer_->undefine(std::string(kStreamsFunction));
  for (const auto& [number, place] : gone) place.stream->on_close();
  state_->turns->close();
}

Status StreamServer::define(const std::string& function, Begin begin) {
  const auto handle = [weak = std::weak_ptr(state_), begin = std::move(begin),
                       answerer = state_->answerer](Request request) {
    if (const auto open = weak.lock()) return open->begin(begin, std::move(request));
    answerer.fail(request.id, no_streams());
  };
  REVERIE_RETURN_IF_ERROR(peer_->define(function, handle));
  MutexLock lock(state_->mutex);
  state_->functions.push_back(function);
  return {};
}

std::size_t StreamServer::count() const {
  MutexLock lock(state_->mutex);
  return state_->streams.size();
}

}  // namespace reverie
