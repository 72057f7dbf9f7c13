// ForwardingService: passes every call on to another service, for tests that change some.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "reverie/service/replay_service.h"

namespace reverie::testing {

class ForwardingService : public ReplayService {
 public:
  explicit ForwardingService(std::shared_ptr<ReplayService> inner) : inner_(std::move(inner)) {}

  RequestId insert(InsertRequest request, Done<InsertResult> done) override {
    return inner_->insert(request, std::move(done));
  }
  RequestId sample(SampleRequest request, Done<SampleResult> done) override {
    return inner_->sample(std::move(request), std::move(done));
  }
  std::optional<std::size_t> hand_back(std::string_view table, SampleBatch& batch) override {
    return inner_->hand_back(table, batch);
  }
  RequestId mutate(const MutateRequest& request, Done<MutateResult> done) override {
    return inner_->mutate(request, std::move(done));
  }
  RequestId lookup(const LookupRequest& request, Done<LookupResult> done) override {
    return inner_->lookup(request, std::move(done));
  }
  RequestId reset(std::string_view table, Done<Status> done) override {
    return inner_->reset(table, std::move(done));
  }
  RequestId info(Done<Result<std::vector<TableInfo>>> done) override {
    return inner_->info(std::move(done));
  }
  RequestId why_blocked(std::string_view table, Done<Result<BlockedReport>> done) override {
    return inner_->why_blocked(table, std::move(done));
  }
  void cancel(RequestId id) override { inner_->cancel(id); }
  void close() override { inner_->close(); }

 protected:
  const std::shared_ptr<ReplayService> inner_;
};

}  // namespace reverie::testing
