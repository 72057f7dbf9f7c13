// What the bindings of writers have in common: arguments, and how a dropped one ends.
#pragma once

#include <string>
#include <string_view>

#include <nanobind/nanobind.h>

#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "reverie/base/fork.h"
#include "reverie/base/format.h"
#include "reverie/client/trajectory_writer.h"

namespace reverie::python {

namespace nb = nanobind;

inline constexpr double kLastFlushS = 1.0;

CodecChoice codec_argument(nb::handle codec);

// Rows of a chunk; none where it is None. `name` is for messages.
std::optional<std::uint32_t> chunk_length_argument(std::string_view name, nb::handle length);

// Reverb's milliseconds, where None or less than 1 means no limit, beside our seconds.
TimePoint deadline(nb::handle timeout_ms, nb::handle timeout_s);

// Issues a ResourceWarning; one that is turned into an error is written to stderr.
void warn_of_loss(const std::string& text) noexcept;

// Lets the leaves of a call go at its end: pointers that are borrowed mean nothing behind it.
class LeavesOfCall {
 public:
  explicit LeavesOfCall(Leaves& leaves) : leaves_(leaves) {}
  LeavesOfCall(const LeavesOfCall&) = delete;
  LeavesOfCall& operator=(const LeavesOfCall&) = delete;
  ~LeavesOfCall() { leaves_.clear(); }

 private:
  Leaves& leaves_;
};

// Ends a writer that was dropped: what it could not bring home in a second is told. `Writer` is one
// of the library's.
template <typename Writer>
void abandon(Writer& writer, const ForkGuard& fork_guard) noexcept {
  if (!fork_guard.check("writer").ok() || writer.closed()) return;
  const nb::error_scope pending;
  Status status;
  std::size_t lost = 0;
  {
    const GilReleased released;
    status = writer.flush(0, Clock::system().now() + seconds(kLastFlushS), WaitOptions());
    lost = writer.pending_items();
    writer.close();
  }
  if (lost > 0) {
    warn_of_loss(format(
        "a writer was dropped unclosed, and {} of its items were still waiting for their tables "
        "after {} s: they are lost; call flush(), end_episode() or close() before",
        lost, kLastFlushS));
  } else if (!status.ok()) {
    warn_of_loss(format("a writer was dropped unclosed: {}", status.message()));
  }
}

}  // namespace reverie::python
