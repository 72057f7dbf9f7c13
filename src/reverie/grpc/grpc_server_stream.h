// A call on a server: from its headers to its trailers.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "reverie/grpc/grpc_server.h"
#include "reverie/grpc/grpc_stream.h"

namespace reverie {

class GrpcServerStream final : public GrpcServerCall, public GrpcStream {
 public:
  // Called for a call with valid headers: gives the receiver of its events, or why it is refused.
  using Begin = std::function<Result<std::shared_ptr<GrpcCallEvents>>(
      const std::shared_ptr<GrpcServerStream>&)>;
  struct Shared {
    GrpcLimits limits;
    std::string token;
    Begin begin;
    std::function<void()> on_over;  // called once per call, when it is over
  };

  // `shared` outlives the stream's session.
  GrpcServerStream(std::shared_ptr<GrpcHub> hub, const Shared& shared);

  // GrpcServerCall
  const GrpcCallInfo& info() const override { return info_; }
  void write(GrpcPayload message) override { send_message(std::move(message)); }
  void finish(const Status& status) override;
  void abort(const Status& why) override { request(GrpcRequest::Kind::kAbort, why); }
  void pause_reading() override { pause(); }
  void resume_reading() override { resume(); }
  std::size_t queued_bytes() const override { return queue_bytes(); }
  bool has_room() const override { return const_cast<GrpcServerStream*>(this)->ask_for_room(); }
  bool is_over() const override { return has_ended(); }
  bool has_room_to_draw() const override {
    return const_cast<GrpcServerStream*>(this)->ask_for_room(/*is_to_draw=*/true);
  }
  void hold(std::size_t bytes) override { budget()->add_drawn(bytes); }
  std::size_t reserve_up_to(std::size_t count, std::size_t bytes_each) override {
    return budget()->reserve_drawn(count, bytes_each);
  }
  void release(std::size_t bytes) override { budget()->give_back_drawn(bytes); }

  // GrpcStream
  void carry_out(GrpcRequest& request) override;
  void on_header(std::string_view name, std::string_view value) override;
  void on_headers_done() override;
  void on_peer_end() override;
  void on_closed(std::uint32_t error_code) override;
  void on_lost(const Status& why) override;

  // Long contents of this field become parts of their messages; 0: no field. Set it before the
  // first message.
  void set_apart(std::uint32_t field_number) { in_->set_apart(field_number); }
  // abort(), on the I/O thread.
  void abort_here(const Status& why);

 private:
  bool is_last_queued() const override { return is_finished_; }
  void on_all_sent(std::uint32_t* flags) override;
  void on_bad_message(const Status& why) override { abort_here(why); }
  void on_first_write() override;
  void on_overflow(const Status& why) override { abort_here(why); }
  void on_deadline() override;

  Status check_headers();
  void respond(const Status& status);
  void leave();

  const Shared& shared_;
  GrpcCallInfo info_;
  // The headers, until they are complete.
  struct Headers {
    std::string method;
    std::string content_type;
    std::string timeout;
    std::string encoding;
    std::string authorization;
    std::string bad_name;  // of metadata with a malformed value
  };
  std::unique_ptr<Headers> headers_ = std::make_unique<Headers>();
  std::size_t metadata_bytes_ = 0;
  bool has_begun_ = false;
  bool has_sent_headers_ = false;
  bool is_finished_ = false;  // nothing is written after what is queued
  Status final_;              // to be sent in the trailers
};

}  // namespace reverie
