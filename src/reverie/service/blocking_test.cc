#include "reverie/service/blocking.h"

#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace reverie {
namespace {

// Completes requests on the thread that polls, as a client over shared memory does.
class LookingService final : public ReplayService {
 public:
  RequestId reset(std::string_view, Done<Status> done) override {
    waiting_ = std::move(done);
    return 1;
  }
  std::optional<bool> look(const std::function<bool()>& is_done) override {
    std::exchange(waiting_, nullptr)(not_found("no such table"));
    was_seen_ = is_done();
    return was_seen_;
  }
  bool was_seen() const { return was_seen_; }

  RequestId insert(InsertRequest, Done<InsertResult>) override { return 0; }
  RequestId sample(SampleRequest, Done<SampleResult>) override { return 0; }
  RequestId mutate(const MutateRequest&, Done<MutateResult>) override { return 0; }
  RequestId lookup(const LookupRequest&, Done<LookupResult>) override { return 0; }
  RequestId info(Done<Result<std::vector<TableInfo>>>) override { return 0; }
  RequestId why_blocked(std::string_view, Done<Result<BlockedReport>>) override { return 0; }
  void cancel(RequestId) override {}
  void close() override {}

 private:
  Done<Status> waiting_;
  bool was_seen_ = false;
};

TEST(Blocking, AnAnswerFoundByTheWaitingThreadEndsItsPolling) {
  LookingService service;
  EXPECT_EQ(reset_and_wait(service, "t").code(), StatusCode::kNotFound);
  EXPECT_TRUE(service.was_seen());
}

}  // namespace
}  // namespace reverie
