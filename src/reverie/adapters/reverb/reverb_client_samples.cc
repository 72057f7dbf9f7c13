// The second source of reverb_client.h: sample requests, and the streams that carry them.
//
// Tested in tests/integration/served_store_test.cc and tests/integration/served_reading_test.cc.
#include <algorithm>
#include <utility>

#include "reverie/adapters/reverb/reverb_client.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/request_checks.h"

namespace reverie {
namespace {

// Added to the limiter's time, for a server that does not answer at all.
constexpr Duration kAnswerTime = std::chrono::seconds(2);
// How many idle sample streams stay open.
constexpr std::size_t kIdleChannelsMax = 16;

// The limiter's timeout in milliseconds; 0 means no limit in the protocol, so a deadline that has
// passed is 1.
std::int64_t timeout_ms(TimePoint deadline) {
  if (deadline == TimePoint::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::system().now());
  return std::max<std::int64_t>(1, left.count());
}

}  // namespace

ReverbClient::Names ReverbClient::names_of(std::string_view table) {
  const auto found = names_.find(table);
  return found == names_.end() ? nullptr : found->second;
}

ReverbClient::Names ReverbClient::learn(const std::vector<TableInfo>& infos,
                                        std::string_view table) {
  MutexLock lock(mutex_);
  Names found;
  for (const TableInfo& info : infos) {
    auto names =
        std::make_shared<const wire::ColumnNames>(wire::ColumnNames::of(info.options.signature));
    if (info.options.name == table) found = names;
    names_.insert_or_assign(info.options.name, std::move(names));
  }
  return found;
}

RequestId ReverbClient::sample(SampleRequest request, Done<SampleResult> done) {
  SampleResult refused;
  request.min_count = std::min(request.min_count, request.count);
  refused.status = is_closed() ? closed_status() : check_sample_request(request);
  if (refused.status.ok() && request.distinct) {
    refused.status = unimplemented(
        "Reverb's protocol draws with replacement; sample distinct items from an embedded store");
  }
  if (!refused.status.ok()) {
    request.batch.clear();
    refused.batch = std::move(request.batch);
    done(std::move(refused));
    return 0;
  }
  RequestId id = 0;
  Names names;
  const std::string_view name = request.table;
  {
    MutexLock lock(mutex_);
    id = begin();
    pending_[id];
    if (!nameless_.contains(request.follows)) names = names_of(name);
  }
  if (names) {
    start_sample(id, name, std::move(request), names, std::move(done));
    return id;
  }
  bool is_behind = false;
  {
    MutexLock lock(mutex_);
    const auto before = nameless_.find(request.follows);
    is_behind = before != nameless_.end();
    if (is_behind) before->second.next = id;
    Nameless& waiting = nameless_[id];
    waiting = {std::string(name), std::move(request), std::move(done), 0, is_behind};
    waiting.request.table = {};
  }
  if (!is_behind) ask_names(id);
  return id;
}

void ReverbClient::ask_names(RequestId id) {
  GrpcCallOptions options = patient();
  {
    MutexLock lock(mutex_);
    const TimePoint deadline = nameless_.at(id).request.deadline;
    if (deadline != TimePoint::max()) options.deadline = deadline + kAnswerTime;
  }
  keep(id, client_->unary(
               path_of("ServerInfo"), GrpcPayload(), std::move(options),
               [this, id](const Result<Ref<GrpcMessage>>& response) { on_names(id, response); }));
}

void ReverbClient::on_names(RequestId id, const Result<Ref<GrpcMessage>>& response) {
  Nameless asked;
  {
    MutexLock lock(mutex_);
    Nameless& kept = nameless_.at(id);
    asked.table = kept.table;
    asked.request = std::move(kept.request);
    asked.done = std::exchange(kept.done, nullptr);
  }
  Status status = response.status();
  Names names;
  if (response.ok()) {
    auto infos = wire::read_info_response((*response)->bytes());
    status = infos.status();
    if (infos.ok()) names = learn(infos->tables, asked.table);
  }
  if (status.ok() && !names) status = not_found("Priority table {} was not found", asked.table);
  if (status.ok()) {
    start_sample(id, asked.table, std::move(asked.request), names, std::move(asked.done));
  } else {
    forget(id);
    asked.request.batch.clear();
    asked.done({std::move(status), std::move(asked.request.batch)});
  }
  start_followers(id);
}

void ReverbClient::start_followers(RequestId id) {
  while (true) {
    Nameless begun;
    Names names;
    {
      MutexLock lock(mutex_);
      id = nameless_.extract(id).mapped().next;
      if (id == 0) return;
      Nameless& next = nameless_.at(id);
      if (!next.done) continue;  // cancelled
      next.is_behind = false;
      names = names_of(next.table);
      if (names) {
        begun.table = next.table;
        begun.request = std::move(next.request);
        begun.done = std::exchange(next.done, nullptr);
      }
    }
    if (!names) return ask_names(id);
    start_sample(id, begun.table, std::move(begun.request), names, std::move(begun.done));
  }
}

void ReverbClient::start_sample(RequestId id, std::string_view table, SampleRequest request,
                                const Names& names, Done<SampleResult> done) {
  const std::size_t count = std::max<std::size_t>(1, request.min_count);
  const bool has_deadline = request.deadline != TimePoint::max();
  SampleChannel::Request asked;
  asked.id = id;
  asked.message = wire::write_sample_request({table, static_cast<std::int64_t>(count),
                                              timeout_ms(request.deadline),
                                              reads_packed_ ? packed::kVersion : 0});
  if (has_deadline) {
    const Duration left = request.deadline - Clock::system().now();
    asked.answer_max = std::max(left, Duration::zero()) + kAnswerTime;
  }
  asked.call = std::make_unique<SampleCall>(count, names, std::move(request.batch));
  asked.done = [this, id, count, has_deadline, done = std::move(done)](SampleResult result) {
    forget(id);
    if (has_deadline && result.status.code() == StatusCode::kDeadlineExceeded) {
      result.status =
          deadline_exceeded("{} of {} samples were drawn before the deadline; the server said: {}",
                            result.batch.size(), count, result.status.message());
    }
    done(std::move(result));
  };
  ask(std::move(asked), request.follows);
}

void ReverbClient::ask(SampleChannel::Request request, RequestId follows) {
  const RequestId id = request.id;
  if (follows != 0) {
    std::shared_ptr<SampleChannel> channel;
    {
      MutexLock lock(mutex_);
      const auto found = pending_.find(follows);
      if (found != pending_.end()) channel = found->second.channel;
    }
    if (channel && channel->ask(request, follows)) return keep(id, channel);
  }
  while (true) {
    std::shared_ptr<SampleChannel> channel;
    {
      MutexLock lock(mutex_);
      if (idle_channels_.empty()) break;
      channel = std::move(idle_channels_.back());
      idle_channels_.pop_back();
    }
    if (channel->ask(request)) return keep(id, channel);
  }
  SampleChannel::Owner& owner = *this;
  const auto channel = std::make_shared<SampleChannel>(owner, world_);
  channel->open(std::move(request), patient(),
                /*is_only=*/client_->address_count() > 1);
  keep(id, channel);
}

// Keeps the channel for cancel(), like the other keep().
void ReverbClient::keep(RequestId id, const std::shared_ptr<SampleChannel>& channel) {
  bool is_cancelled = false;
  {
    MutexLock lock(mutex_);
    const auto found = pending_.find(id);
    if (found == pending_.end()) return;
    is_cancelled = found->second.is_cancelled;
    found->second.call = nullptr;
    found->second.channel = channel;
    found->second.step = 1;
  }
  if (is_cancelled) channel->cancel(id);
}

void ReverbClient::on_idle(const std::shared_ptr<SampleChannel>& channel) {
  {
    MutexLock lock(mutex_);
    if (idle_channels_.size() < kIdleChannelsMax) {
      idle_channels_.push_back(channel);
      return;
    }
  }
  channel->finish();
}

void ReverbClient::on_over(const std::shared_ptr<SampleChannel>& channel, const Status& why) {
  MutexLock lock(mutex_);
  if (!why.ok()) names_.clear();  // the server that answers next may be another one
  std::erase(idle_channels_, channel);
}

}  // namespace reverie
