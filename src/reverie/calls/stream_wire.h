// Messages of streams: calls that give many values. The protocol of python/reverie/rpc_streams.py,
// so that either side may be a Python program.
//
//     caller                                            server
//     name(arguments)                          -->      the stream's number
//     streams(number, "next", 0)               -->      (0, value), or (1, result) at the end
//     streams(number, "send", 0, value)        -->      None, once the server has taken it
//     streams(number, "finish", count)         -->      None
//     streams(number, "watch")                          is withdrawn when the caller closes or dies
//     streams(number, "close")                 -->      None; the watch may not have been read
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "reverie/base/status.h"
#include "reverie/tensor/payload.h"

namespace reverie {

// The function that carries all streams of a peer.
inline constexpr std::string_view kStreamsFunction = "reverie.streams";

enum class StreamAsk { kNext, kSend, kFinish, kWatch, kClose };

// A caller's message about one of its streams.
struct StreamMessage {
  std::uint64_t stream = 0;
  StreamAsk ask = StreamAsk::kNext;
  std::uint64_t number = 0;  // of the value that is asked for or sent; with kFinish the count
  Payload value = {};        // with kSend
};

// `value` is one value, as ValueWriter wrote it.
Payload encode_stream_message(StreamMessage message);
// DATA_LOSS for anything else. The value is not checked: its reader does that.
Result<StreamMessage> decode_stream_message(Payload payload);

struct StreamAnswer {
  bool is_end = false;
  Payload value = {};  // one value, or at the end what the function gave
};
// An empty `value` is sent as None.
Payload encode_stream_answer(StreamAnswer answer);
Result<StreamAnswer> decode_stream_answer(Payload payload);

}  // namespace reverie
