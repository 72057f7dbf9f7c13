// Tested in ucx_connection_test.cc.
#include "reverie/net/ucx_worker.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include <dlfcn.h>
#include <poll.h>
#include <signal.h>
#include <ucp/api/ucp.h>
#include <ucs/config/global_opts.h>
#include <ucs/debug/debug.h>

#include "reverie/base/check.h"
#include "reverie/base/fork.h"

namespace reverie {
namespace {

constexpr unsigned kMessageId = 0;
constexpr int kProgressMax = 64;
constexpr Duration kCloseMax = std::chrono::milliseconds(100);

struct MessageHeader {
  UcxKey key;
  std::uint64_t offset;
};
static_assert(sizeof(MessageHeader) == 24);

// UCX's library handles signals of crashes and SIGHUP from when it is loaded. They belong to the
// program, so what was there before is restored at once.
[[gnu::constructor]] void leave_signals_alone() {
  for (const int signal : {SIGILL, SIGSEGV, SIGBUS, SIGFPE, SIGHUP}) {
    struct sigaction action {};
    if (::sigaction(signal, nullptr, &action) != 0) continue;
    Dl_info owner{};
    const bool is_in_library = ::dladdr(reinterpret_cast<void*>(action.sa_handler), &owner) != 0 &&
                               owner.dli_fname != nullptr;
    if (is_in_library && std::strstr(owner.dli_fname, "libucs") != nullptr) {
      ucs_debug_disable_signal(signal);
    }
  }
}

// UCX has one thread for all workers of a process, which a forked child lacks.
class LiveWorkers {
 public:
  // UNAVAILABLE in a process that was forked while there were workers.
  Status begin() {
    if (count_.load() == 0) generation_.store(fork_generation());
    if (generation_.load() != fork_generation()) {
      return unavailable("UCX was in use when this process was forked, so it is not usable here");
    }
    ++count_;
    return {};
  }
  void end() { --count_; }

 private:
  std::atomic<int> count_{0};
  std::atomic<std::uint32_t> generation_{0};
};

LiveWorkers& live_workers() {
  static LiveWorkers workers;
  return workers;
}

// Its messages for people would go to the program's standard output.
void be_silent() {
  static const bool is_done = [] {
    if (std::getenv("UCX_LOG_LEVEL") == nullptr) ucs_global_opts_set_value("LOG_LEVEL", "fatal");
    return true;
  }();
  (void)is_done;
}

Status status_of(const char* what, ucs_status_t status) {
  if (status == UCS_OK) return {};
  return unavailable("UCX {}: {}", what, ucs_status_string(status));
}

}  // namespace

struct UcxWorker::Impl {
  // A message that UCX may still read.
  struct Message {
    Impl* owner;
    MessageHeader header;
    std::array<std::byte, kMessageMax> bytes;
  };

  Impl(const UcxKey& own_key, Events own_events) : key(own_key), events(std::move(own_events)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    is_lost = true;  // there are no further events
    if (endpoint != nullptr && is_forced) {
      ucp_request_param_t how{};
      how.op_attr_mask = UCP_OP_ATTR_FIELD_FLAGS;
      how.flags = UCP_EP_CLOSE_FLAG_FORCE;
      finish(ucp_ep_close_nbx(endpoint, &how), kCloseMax);
    }
    if (own_address != nullptr) ucp_worker_release_address(worker, own_address);
    if (worker != nullptr) ucp_worker_destroy(worker);
    if (context != nullptr) ucp_cleanup(context);
    if (is_counted) live_workers().end();
  }

  Status open(const UcxOptions& options, bool is_local) {
    REVERIE_RETURN_IF_ERROR(live_workers().begin());
    is_counted = true;
    be_silent();
    ucp_config_t* config = nullptr;
    REVERIE_RETURN_IF_ERROR(
        status_of("cannot read its configuration", ucp_config_read(nullptr, nullptr, &config)));
    ucs_status_t status = UCS_OK;
    const auto set = [&](const char* name, const char* value) {
      if (status == UCS_OK) status = ucp_config_modify(config, name, value);
    };
    if (!options.transports.empty()) set("TLS", options.transports.c_str());
    if (is_local) set("NET_DEVICES", "lo");
    set("KEEPALIVE_INTERVAL", "inf");  // the socket shows whether the other side lives
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
    if (status == UCS_OK) status = ucp_init(&params, config, &context);
    ucp_config_release(config);
    REVERIE_RETURN_IF_ERROR(status_of("has no transport that it can use", status));
    ucp_worker_params_t how{};
    how.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    how.thread_mode = UCS_THREAD_MODE_SINGLE;
    REVERIE_RETURN_IF_ERROR(
        status_of("cannot make a worker", ucp_worker_create(context, &how, &worker)));
    REVERIE_RETURN_IF_ERROR(
        status_of("has no event descriptor", ucp_worker_get_efd(worker, &descriptor)));
    ucp_am_handler_param_t handler{};
    handler.field_mask = UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB |
                         UCP_AM_HANDLER_PARAM_FIELD_ARG;
    handler.id = kMessageId;
    handler.cb = on_message;
    handler.arg = this;
    REVERIE_RETURN_IF_ERROR(
        status_of("takes no handler", ucp_worker_set_am_recv_handler(worker, &handler)));
    return status_of("has no address",
                     ucp_worker_get_address(worker, &own_address, &own_address_size));
  }

  Status connect(std::span<const std::byte> address, const UcxKey& receiver_key) {
    their_key = receiver_key;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS | UCP_EP_PARAM_FIELD_ERR_HANDLER |
                        UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE;
    params.address = reinterpret_cast<const ucp_address_t*>(address.data());
    params.err_handler = {on_error, this};
    params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
    ucs_status_t status = ucp_ep_create(worker, &params, &endpoint);
    is_forced = status == UCS_OK;
    // Shared memory does not notice that the other side has ended; the socket does.
    if (status == UCS_ERR_UNREACHABLE || status == UCS_ERR_UNSUPPORTED) {
      params.err_mode = UCP_ERR_HANDLING_MODE_NONE;
      status = ucp_ep_create(worker, &params, &endpoint);
    }
    if (status != UCS_OK) endpoint = nullptr;
    return status_of("cannot reach the other side", status);
  }

  static ucs_status_t on_message(void* arg, const void* header, std::size_t header_size, void* data,
                                 std::size_t size, const ucp_am_recv_param_t* param) {
    auto& self = *static_cast<Impl*>(arg);
    MessageHeader said;
    if (header_size != sizeof(said)) return UCS_OK;
    std::memcpy(&said, header, sizeof(said));
    // Whole messages only: a sender of ours lets none wait for memory of the receiver.
    if (said.key != self.key || (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0) return UCS_OK;
    self.events.received(said.offset, {static_cast<const std::byte*>(data), size});
    return UCS_OK;
  }

  static void on_error(void* arg, ucp_ep_h, ucs_status_t status) {
    static_cast<Impl*>(arg)->lose(status);
  }

  static void on_sent(void* request, ucs_status_t status, void* message) {
    auto* const sent = static_cast<Message*>(message);
    Impl& self = *sent->owner;
    ucp_request_free(request);
    std::erase_if(self.pending, [sent](const auto& one) { return one.get() == sent; });
    if (status != UCS_OK) self.lose(status);
  }

  void lose(ucs_status_t status) {
    if (!std::exchange(is_lost, true)) events.lost(status_of("lost the other side", status));
  }

  // Waits for a request; the bound keeps a peer that does not read from holding the loop.
  void finish(ucs_status_ptr_t request, Duration at_most) {
    if (!UCS_PTR_IS_PTR(request)) return;
    const TimePoint until = Clock::system().now() + at_most;
    while (ucp_request_check_status(request) == UCS_INPROGRESS && Clock::system().now() < until) {
      if (ucp_worker_progress(worker) > 0 || ucp_worker_arm(worker) != UCS_OK) continue;
      pollfd asked{descriptor, POLLIN, 0};
      ::poll(&asked, 1, 1);
    }
    ucp_request_free(request);
  }

  const UcxKey key;
  const Events events;
  UcxKey their_key{};
  ucp_context_h context = nullptr;
  ucp_worker_h worker = nullptr;
  ucp_ep_h endpoint = nullptr;
  ucp_address_t* own_address = nullptr;
  std::size_t own_address_size = 0;
  int descriptor = -1;
  bool is_counted = false;
  bool is_forced = false;  // the endpoint may be closed without the other side
  bool is_lost = false;
  std::unique_ptr<Message> next;  // is filled, and used again if it was sent at once
  std::vector<std::unique_ptr<Message>> pending;  // outlive the worker
};

UcxWorker::UcxWorker(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

UcxWorker::~UcxWorker() = default;

Result<std::unique_ptr<UcxWorker>> UcxWorker::make(const UcxOptions& options, bool is_local,
                                                   const UcxKey& key, Events events) {
  std::unique_ptr<Impl> impl(new Impl(key, std::move(events)));
  REVERIE_RETURN_IF_ERROR(impl->open(options, is_local));
  return std::unique_ptr<UcxWorker>(new UcxWorker(std::move(impl)));
}

int UcxWorker::event_descriptor() const {
  return impl_->descriptor;
}

std::span<const std::byte> UcxWorker::address() const {
  return {reinterpret_cast<const std::byte*>(impl_->own_address), impl_->own_address_size};
}

Status UcxWorker::connect(std::span<const std::byte> address, const UcxKey& key) {
  return impl_->connect(address, key);
}

bool UcxWorker::can_send() const {
  return impl_->pending.size() < kPendingMax;
}

std::size_t UcxWorker::pending() const {
  return impl_->pending.size();
}

std::span<std::byte, UcxWorker::kMessageMax> UcxWorker::buffer() {
  if (!impl_->next) impl_->next = std::make_unique_for_overwrite<Impl::Message>();
  return impl_->next->bytes;
}

Status UcxWorker::send(std::uint64_t offset, std::size_t size_bytes) {
  REVERIE_CHECK(impl_->endpoint != nullptr && can_send() && size_bytes <= kMessageMax);
  (void)buffer();
  impl_->next->owner = impl_.get();
  impl_->next->header = {impl_->their_key, offset};
  // Before it is sent: its callback may run within the call.
  Impl::Message& message = *impl_->pending.emplace_back(std::move(impl_->next));
  ucp_request_param_t how{};
  how.op_attr_mask =
      UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  how.cb.send = Impl::on_sent;
  how.user_data = &message;
  how.flags = UCP_AM_SEND_FLAG_EAGER;
  const ucs_status_ptr_t sent =
      ucp_am_send_nbx(impl_->endpoint, kMessageId, &message.header, sizeof(message.header),
                      message.bytes.data(), size_bytes, &how);
  if (UCS_PTR_IS_PTR(sent)) return {};
  // No callback: it was sent, or refused.
  impl_->next = std::move(impl_->pending.back());
  impl_->pending.pop_back();
  return status_of("does not send", UCS_PTR_STATUS(sent));
}

bool UcxWorker::progress() {
  bool has_done = false;
  for (int i = 0; i < kProgressMax && ucp_worker_progress(impl_->worker) > 0; ++i) has_done = true;
  return has_done;
}

bool UcxWorker::arm() {
  return ucp_worker_arm(impl_->worker) == UCS_OK;
}

void UcxWorker::flush(Duration at_most) {
  if (impl_->endpoint == nullptr || impl_->is_lost) return;
  ucp_request_param_t how{};
  impl_->finish(ucp_ep_flush_nbx(impl_->endpoint, &how), at_most);
}

}  // namespace reverie
