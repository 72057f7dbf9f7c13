// Blocking calls on a ReplayService, for threads that have nothing else to do.
//
// A call that is served inline costs no lock and no wake-up. One that waits can be interrupted:
// every poll interval it calls `interrupted` (Python checks for Ctrl-C there).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "reverie/record/store_origin.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// A caller that copies more bytes than this counts that as a wait (WaitOptions::wait_begins).
inline constexpr std::size_t kLongCopyBytes = std::size_t{128} << 10;

struct WaitOptions {
  // Called on the waiting thread about twenty times a second; true ends the wait with CANCELLED.
  std::function<bool()> interrupted;
  // Called on the waiting thread when a wait grows long: after 10 s, 20 s, 40 s, ...
  std::function<void(double waited_s)> still_waiting;
  // Called on the waiting thread before a call begins to wait, or a long copy, and after that; not
  // for a call that is served at once.
  std::function<void()> wait_begins;
  std::function<void()> wait_ends;
  // Whether to poll before sleeping, where the service does not poll itself.
  bool polls = true;
};

// Calls wait_begins at the start of a scope, wait_ends at its end.
class WaitScope {
 public:
  explicit WaitScope(const WaitOptions& options) : options_(options) {
    if (options_.wait_begins) options_.wait_begins();
  }
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;
  ~WaitScope() {
    if (options_.wait_ends) options_.wait_ends();
  }

 private:
  const WaitOptions& options_;
};

// A sample request whose result is waited for later. For one thread, which with `is_for_another`
// is not the one that asks.
class PendingSample {
 public:
  PendingSample() = default;
  PendingSample(ReplayService& service, SampleRequest request, bool is_for_another = false);
  PendingSample(PendingSample&&) noexcept;
  PendingSample& operator=(PendingSample&&) noexcept;
  // Cancels the request, unless it was waited for.
  ~PendingSample();

  // Whether there is a result to wait for.
  explicit operator bool() const { return arrival_ != nullptr; }
  // 0 if it completed within the call.
  RequestId id() const { return id_; }
  // Waits for the result. Requires *this, which is empty afterwards.
  SampleResult wait(const WaitOptions& options);

 private:
  class Answer;
  ReplayService* service_ = nullptr;
  RequestId id_ = 0;
  std::unique_ptr<Answer> arrival_;
};

InsertResult insert_and_wait(ReplayService& service, InsertRequest request,
                             const WaitOptions& options = {});
SampleResult sample_and_wait(ReplayService& service, SampleRequest request,
                             const WaitOptions& options = {});
MutateResult mutate_and_wait(ReplayService& service, MutateRequest request,
                             const WaitOptions& options = {});
LookupResult lookup_and_wait(ReplayService& service, const LookupRequest& request,
                             const WaitOptions& options = {});
Status reset_and_wait(ReplayService& service, std::string_view table,
                      const WaitOptions& options = {});
Result<std::vector<TableInfo>> info_and_wait(ReplayService& service,
                                             const WaitOptions& options = {});
Result<BlockedReport> why_blocked_and_wait(ReplayService& service, std::string_view table,
                                           const WaitOptions& options = {});

// A request that is not part of this interface: `start` begins it, like the calls above.
Result<std::string> text_and_wait(
    ReplayService& service,
    const std::function<RequestId(ReplayService::Done<Result<std::string>> done)>& start,
    const WaitOptions& options = {});

Result<StoreOrigin> origin_and_wait(
    ReplayService& service,
    const std::function<RequestId(ReplayService::Done<Result<StoreOrigin>> done)>& start,
    const WaitOptions& options = {});

Result<std::uint64_t> new_client_and_wait(ReplayService& service, const WaitOptions& options = {});

}  // namespace reverie
