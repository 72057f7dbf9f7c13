// A call on a client: from its first request to its status.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "reverie/grpc/grpc_client.h"
#include "reverie/grpc/grpc_stream.h"

namespace reverie {

class GrpcClientStream final : public GrpcClientCall, public GrpcStream {
 public:
  // Called for a call that begins, and for one that is over; on the I/O thread.
  struct Owner {
    virtual ~Owner() = default;
    virtual void begin(const std::shared_ptr<GrpcClientStream>& stream) = 0;
    virtual void note_over(GrpcClientStream& stream) = 0;
    // Why a call that waits for a connection has none.
    virtual std::string why_waiting() const = 0;
  };

  GrpcClientStream(std::shared_ptr<GrpcHub> hub, const GrpcLimits& limits,
                   std::weak_ptr<Owner> owner, std::string_view path, GrpcCallOptions options,
                   std::shared_ptr<GrpcCallEvents> events);

  // GrpcClientCall
  void write(GrpcPayload message) override { send_message(std::move(message)); }
  void half_close() override { request(GrpcRequest::Kind::kHalfClose); }
  void cancel() override { request(GrpcRequest::Kind::kCancel); }
  void pause_reading() override { pause(); }
  void resume_reading() override { resume(); }
  std::size_t queued_bytes() const override { return queue_bytes(); }
  bool has_room() const override { return const_cast<GrpcClientStream*>(this)->ask_for_room(); }
  bool is_over() const override { return has_ended(); }

  // GrpcStream
  void carry_out(GrpcRequest& request) override;
  void on_header(std::string_view name, std::string_view value) override;
  void on_headers_done() override;
  void on_peer_end() override;
  void on_closed(std::uint32_t error_code) override;
  void on_lost(const Status& why) override;

  bool is_waiting_for_ready() const { return options_.is_waiting_for_ready; }
  // There is no connection yet: waits for one, up to ready_time. May be called several times.
  void wait_for_connection();
  // Sends the call's headers, then what was written.
  void begin_on(GrpcSession& session, std::string_view authority, std::string_view token);
  // Ends the call here and, if it has begun, at the server.
  void fail(const Status& why);

 private:
  bool is_last_queued() const override { return is_half_closed_; }
  void on_all_sent(std::uint32_t* flags) override;
  void on_bad_message(const Status& why) override { fail(why); }
  void on_first_write() override {}
  void on_overflow(const Status& why) override { fail(why); }
  void on_deadline() override;
  Status check_metadata() const;
  void on_ended() override;

  const std::weak_ptr<Owner> owner_;
  const std::string path_;
  const GrpcCallOptions options_;
  bool is_half_closed_ = false;
  std::unique_ptr<LoopTimer> ready_timer_;  // while it waits for a connection
  // The response.
  std::size_t header_bytes_ = 0;
  std::string http_status_;
  std::string grpc_status_;
  std::string grpc_message_;
  std::string encoding_;
  bool has_status_ = false;
};

}  // namespace reverie
