// Tested in tests/integration/served_store_test.cc and tests/integration/served_reading_test.cc.
#include "reverie/adapters/reverb/reverb_service.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "reverie/adapters/reverb/insert_stream.h"
#include "reverie/adapters/reverb/reverb_store.h"
#include "reverie/adapters/reverb/sample_stream.h"
#include "reverie/base/random.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/blocking.h"

namespace reverie {
namespace {

using StorePtr = std::shared_ptr<ReverbStore>;

std::string path_of(const char* method) {
  return std::string(wire::kServicePath) + method;
}

// The number of inserts that may wait before Reverb's server stops reading.
std::size_t pending_max(std::int64_t max_size) {
  return static_cast<std::size_t>(std::clamp<std::int64_t>(max_size / 10, 1, 1000));
}

Status status_of_mutation(const Status& status, bool has_nan) {
  if (status.code() != StatusCode::kInvalidArgument) return status;
  return invalid_argument("Priority must not be {}. ({})", has_nan ? "NaN" : "negative",
                          status.message());
}

// A client's text, made safe for one line of the log.
std::string line_of(std::string_view text) {
  constexpr std::size_t kBytesMax = 200;
  std::string line(text.substr(0, kBytesMax));
  std::ranges::replace_if(
      line, [](char c) { return c < ' ' || c > '~'; }, '?');
  return line;
}

void mutate(const StorePtr& store, const Ref<GrpcMessage>& message, const GrpcUnaryReply& reply) {
  const auto request = wire::read_mutate_request(message->bytes());
  if (!request.ok()) return reply(request.status());
  if (!store->find(request->table)) return reply(reverb_no_table(request->table));
  MutateRequest mutation;
  mutation.table = request->table;
  std::vector<CorruptItem> corrupt;
  for (const auto& item : request->corrupt) {
    corrupt.push_back({item.key, item.chunk, line_of(item.why)});
  }
  mutation.corrupt = corrupt;
  mutation.deletes = request->deletes;
  mutation.keys = request->keys;
  mutation.key_priorities = request->priorities;
  const bool has_nan =
      std::ranges::any_of(request->priorities, [](double p) { return std::isnan(p); });
  store->service->mutate(mutation, [has_nan, reply](const MutateResult& result) {
    Status status = status_of_mutation(result.status, has_nan);
    if (status.ok()) return reply(GrpcPayload());
    reply(std::move(status));
  });
}

void reset(const StorePtr& store, const Ref<GrpcMessage>& message, const GrpcUnaryReply& reply) {
  const auto table = wire::read_reset_request(message->bytes());
  if (!table.ok()) return reply(table.status());
  if (!store->find(*table)) return reply(reverb_no_table(*table));
  store->service->reset(*table, [reply](Status status) {
    if (status.ok()) return reply(GrpcPayload());
    reply(std::move(status));
  });
}

void info(const StorePtr& store, const Ref<GrpcMessage>& message, const GrpcUnaryReply& reply) {
  const auto request = wire::read_info_request(message->bytes());
  if (!request.ok()) return reply(request.status());
  const auto answer = [store, reply, asked = *request](std::uint64_t client_number) {
    store->service->info(
        [store, reply, asked, client_number](Result<std::vector<TableInfo>> infos) {
          // The store is closed: its server stops, and may return.
          if (infos.status().code() == StatusCode::kCancelled) {
            return reply(unavailable("Cancelling all calls"));
          }
          if (!infos.ok()) return reply(infos.status());
          wire::ServerInfoResponse response{store->state_high, store->state_low,
                                            std::move(infos).value(), client_number};
          if (asked.wants_origin) {
            Result<StoreOrigin> origin = served_origin(store->checkpoints);
            if (!origin.ok()) return reply(origin.status());
            response.origin = std::move(origin).value();
          }
          reply(GrpcPayload::of(wire::write_info_response(response)));
        });
  };
  if (!request->wants_client_number) return answer(0);
  store->service->new_client(
      [answer](const Result<std::uint64_t>& number) { answer(number.ok() ? number.value() : 0); });
}

// The checkpoint is completed whether the client waits for it or not.
void checkpoint(const StorePtr& store, const Ref<GrpcMessage>& message,
                const GrpcUnaryReply& reply) {
  if (!store->checkpoints.write) {
    return reply(unimplemented("this server writes no checkpoints; it has no checkpointer"));
  }
  const auto payload = wire::read_checkpoint_request(message->bytes());
  if (!payload.ok()) return reply(payload.status());
  store->checkpoints.write(
      *payload, [reply, payload_bytes = payload->size()](const Result<std::string>& path) {
        if (!path.ok()) return reply(path.status());
        reply(GrpcPayload::of(wire::write_checkpoint_response({*path, payload_bytes})));
      });
}

// A client in the server's own process asks for the store's address here; it gets none, and then
// samples like any other client.
class InitializeConnection final : public GrpcServerEvents {
 public:
  explicit InitializeConnection(std::shared_ptr<GrpcServerCall> call) : call_(std::move(call)) {}

  void on_message(Ref<GrpcMessage> message) override {
    const auto request = wire::read_initialize_request(message->bytes());
    if (!request.ok()) return call_->finish(request.status());
    if (call_->info().is_peer_local) call_->write(GrpcPayload());
    call_->finish({});
  }
  void on_half_close() override { call_->finish(internal_error("Failed to read from stream")); }
  void on_end(const Status&) override {}

 private:
  const std::shared_ptr<GrpcServerCall> call_;
};

}  // namespace

Result<std::unique_ptr<ReverbService>> ReverbService::make(std::shared_ptr<ReplayService> service,
                                                           const ReverbServiceOptions& options) {
  REVERIE_ASSIGN_OR_RETURN(const std::vector<TableInfo> infos, info_and_wait(*service));
  auto store = std::make_shared<ReverbStore>(std::move(service), options.cache_bytes_max,
                                             options.clock ? *options.clock : Clock::system());
  store->kept_bytes_max = options.kept_bytes_max;
  store->in_flight = options.in_flight;
  store->codec = options.codec;
  Random random(options.seed);
  store->state_high = random.next();
  store->state_low = random.next();
  for (const TableInfo& info : infos) {
    store->tables[info.options.name] = {
        wire::ColumnNames::of(info.options.signature), pending_max(info.options.max_size),
        info.options.undoes_unsent, store->service->keeps_receipts(info.options.name)};
  }
  store->sessions =
      options.sessions ? options.sessions : insert_sessions_of(*store->service, store->clock);
  store->checkpoints = options.checkpoints;
  return std::unique_ptr<ReverbService>(new ReverbService(std::move(store)));
}

GrpcMethod reverb_insert_stream(std::shared_ptr<ReverbStore> store) {
  return [store = std::move(store)](std::shared_ptr<GrpcServerCall> call) {
    store->insert_calls.add(call);
    return std::make_shared<InsertStream>(store, std::move(call));
  };
}

GrpcMethod reverb_sample_stream(std::shared_ptr<ReverbStore> store) {
  return [store = std::move(store)](std::shared_ptr<GrpcServerCall> call) {
    store->sample_calls.add(call);
    return std::make_shared<SampleStream>(store, std::move(call));
  };
}

void ReverbService::add_to(GrpcServer& server) const {
  server.add_method(path_of("InsertStream"), reverb_insert_stream(store_));
  server.add_method(path_of("SampleStream"), reverb_sample_stream(store_));
  server.add_method(path_of("InitializeConnection"), [](std::shared_ptr<GrpcServerCall> call) {
    return std::make_shared<InitializeConnection>(std::move(call));
  });
  using Call = std::shared_ptr<GrpcServerCall>;
  server.add_unary(
      path_of("MutatePriorities"),
      [store = store_](const Call&, const Ref<GrpcMessage>& request, const GrpcUnaryReply& reply) {
        mutate(store, request, reply);
      });
  server.add_unary(path_of("Reset"),
                   [store = store_](const Call&, const Ref<GrpcMessage>& request,
                                    const GrpcUnaryReply& reply) { reset(store, request, reply); });
  server.add_unary(path_of("ServerInfo"),
                   [store = store_](const Call&, const Ref<GrpcMessage>& request,
                                    const GrpcUnaryReply& reply) { info(store, request, reply); });
  server.add_unary(
      path_of("Checkpoint"),
      [store = store_](const Call&, const Ref<GrpcMessage>& request, const GrpcUnaryReply& reply) {
        checkpoint(store, request, reply);
      });
}

void ReverbService::close() {
  store_->service->close();
  store_->insert_calls.finish_all(unavailable("Cancelling all calls"));
  store_->sample_calls.finish_all(cancelled("RateLimiter has been cancelled"));
}

ReverbFigures ReverbService::figures() const {
  return {store_->inserts.load(std::memory_order_relaxed),
          store_->samples.load(std::memory_order_relaxed),
          store_->unsent_samples.load(std::memory_order_relaxed),
          store_->undone_samples.load(std::memory_order_relaxed)};
}

}  // namespace reverie
