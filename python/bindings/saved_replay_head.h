// What a saved replay buffer's payload begins with; docs/formats/checkpoint.md is the page.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "python/bindings/replay_arrays.h"
#include "reverie/base/status.h"
#include "reverie/codec/byte_stream.h"

namespace reverie::python {

// Its first words: of a buffer alone, and with what a training attached to it.
inline constexpr std::string_view kStateKind = "reverie replay buffer, 1";
inline constexpr std::string_view kAttachedKind = "reverie replay buffer, 2";

// What is saved of a buffer beyond its state.
struct SavedHead {
  std::optional<double> alpha;
  std::optional<double> beta;  // none where it was a function
  bool weighs_over_buffer = false;
  std::uint64_t update_count = 0;
  ReplayStructures structures;
  std::string attached;

  void write(ByteWriter& out) const {
    out.text(attached.empty() ? kStateKind : kAttachedKind);
    if (!attached.empty()) out.text(attached);
    for (const std::optional<double>& number : {alpha, beta}) {
      out.u8(number ? 1 : 0).f64(number.value_or(0));
    }
    out.u8(weighs_over_buffer ? 1 : 0).u64(update_count);
    out.text(structures.obs).text(structures.action);
    out.u32(static_cast<std::uint32_t>(structures.extra.size()));
    for (const std::string& name : structures.extra) out.text(name);
  }
  static Result<SavedHead> read(ByteReader& in) {
    const std::string kind = in.text();
    if (kind != kStateKind && kind != kAttachedKind) {
      return invalid_argument(
          "it is no checkpoint of a ReplayBuffer, or one of another version; give a folder that "
          "ReplayBuffer.save() wrote to");
    }
    SavedHead head;
    if (kind == kAttachedKind) head.attached = in.text();
    for (std::optional<double>* const number : {&head.alpha, &head.beta}) {
      const bool is_there = in.u8() != 0;
      const double value = in.f64();
      if (is_there) *number = value;
    }
    head.weighs_over_buffer = in.u8() != 0;
    head.update_count = in.u64();
    head.structures.obs = in.text();
    head.structures.action = in.text();
    const std::size_t extra = in.count32(4);
    for (std::size_t i = 0; i < extra; ++i) head.structures.extra.push_back(in.text());
    if (!in.ok()) return data_loss("the head of a replay buffer is cut short");
    return head;
  }
};

}  // namespace reverie::python
