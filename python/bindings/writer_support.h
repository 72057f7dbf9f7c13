// What the bindings of writers share: arguments, and the end of a dropped writer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/convert.h"
#include "python/bindings/nest.h"
#include "python/bindings/one_call.h"
#include "reverie/base/fork.h"
#include "reverie/base/format.h"
#include "reverie/client/trajectory_writer.h"

namespace reverie::python {

namespace nb = nanobind;

inline constexpr double kLastFlushS = 1.0;

CodecChoice codec_argument(nb::handle codec);

// Rows of a chunk; none for None. `name` is for messages.
std::optional<std::uint32_t> chunk_length_argument(std::string_view name, nb::handle length);

// The deadline from Reverb's milliseconds, None or less than 1: no limit, or from our seconds.
TimePoint deadline(nb::handle timeout_ms, nb::handle timeout_s);

// Issues a ResourceWarning; one that is turned into an error is written to stderr.
void warn_of_loss(const std::string& text) noexcept;

// Releases the leaves of a call at its end, after which borrowed pointers are invalid.
class LeavesOfCall {
 public:
  explicit LeavesOfCall(Leaves& leaves) : leaves_(leaves) {}
  LeavesOfCall(const LeavesOfCall&) = delete;
  LeavesOfCall& operator=(const LeavesOfCall&) = delete;
  ~LeavesOfCall() { leaves_.clear(); }

 private:
  Leaves& leaves_;
};

// Ends a dropped writer: warns about items that it could not insert within a second, and about
// those that were refused. `Writer` is one of the library's.
template <typename Writer>
void abandon(Writer& writer, const ForkGuard& fork_guard) noexcept {
  if (!fork_guard.check("writer").ok() || writer.closed()) return;
  const nb::error_scope pending;
  std::vector<std::string> refused;
  std::size_t lost = 0;
  {
    const GilReleased released;
    const TimePoint until = Clock::system().now() + seconds(kLastFlushS);
    Status status = writer.flush(0, until, WaitOptions());
    // A flush ends when it has a loss to report; the other items may still be inserted.
    while (!status.ok() && !writer.closed() && Clock::system().now() < until) {
      refused.push_back(status.message());
      status = writer.flush(0, until, WaitOptions());
    }
    lost = writer.pending_items();
    writer.close();
  }
  if (lost > 0) {
    warn_of_loss(format(
        "a writer was dropped unclosed, and {} of its items were still waiting for their tables "
        "after {} s: they are lost; call flush(), end_episode() or close() before",
        lost, kLastFlushS));
  }
  for (const std::string& refusal : refused) {
    warn_of_loss(format("a writer was dropped unclosed: {}", refusal));
  }
}

template <typename Writer>
void check_writer_open(const Writer& writer) {
  if (writer.closed()) raise(failed_precondition("the writer is closed; make a new one"));
}

// Binds waits and ends, which all writers have. `Face` has the library's writer(), its calls()
// (OneCallAtATime), its wait_options(), on_episode_end(clears), and check_here(), which raises in a
// forked child.
template <typename Face>
void bind_ends(nb::class_<Face>& type) {
  using namespace nb::literals;
  type.def(
      "flush",
      [](Face& self, nb::handle block_until_num_items, nb::handle timeout_ms,
         nb::handle timeout_s) {
        const InUse in_use(self.calls());
        const auto pending =
            integer_argument<std::size_t>("block_until_num_items", block_until_num_items, 0);
        const TimePoint until = deadline(timeout_ms, timeout_s);
        unwrap(
            without_gil([&] { return self.writer().flush(pending, until, self.wait_options()); }));
      },
      "block_until_num_items"_a.none() = 0, "timeout_ms"_a = nb::none(), nb::kw_only(),
      "timeout_s"_a = nb::none(),
      nb::sig("def flush(self, block_until_num_items: int = 0, "
              "timeout_ms: float | None = None, *, timeout_s: float | None = None) -> None"),
      R"(Waits until at most ``block_until_num_items`` items are not in their table.

Args:
    block_until_num_items: >= 0.
    timeout_ms: how long to wait, as Reverb counts it; 0 and less is without limit.
    timeout_s: the same in seconds; 0 does not wait.

Raises:
    InvalidArgumentError: an argument is out of range.
    NotFoundError: there is no such table; its items are lost.
    DeadlineExceededError: the time is up; the message says how many items wait.)");
  type.def(
      "end_episode",
      [](Face& self, nb::handle clear_buffers, nb::handle timeout_ms, nb::handle timeout_s) {
        const InUse in_use(self.calls());
        const bool clears = flag_argument("clear_buffers", clear_buffers);
        const TimePoint until = deadline(timeout_ms, timeout_s);
        unwrap(without_gil(
            [&] { return self.writer().end_episode(clears, until, self.wait_options()); }));
        self.on_episode_end(clears);
      },
      "clear_buffers"_a.none() = true, "timeout_ms"_a = nb::none(), nb::kw_only(),
      "timeout_s"_a = nb::none(),
      nb::sig("def end_episode(self, clear_buffers: bool = True, "
              "timeout_ms: float | None = None, *, timeout_s: float | None = None) -> None"),
      R"(Makes the items that wait for the end, flushes, and begins the next episode.

Args:
    clear_buffers: forget the steps so far; else items may span both episodes.
    timeout_ms: how long to wait, as Reverb counts it; 0 and less is without limit.
    timeout_s: the same in seconds; 0 does not wait.

Raises:
    DeadlineExceededError: the time is up; the episode goes on as it was. Call it again: no item is
        made twice.)");
  type.def_prop_ro(
      "pending_items",
      [](const Face& self) {
        self.check_here();
        return self.writer().pending_items();
      },
      "Items that are not in their table yet.");
  type.def_prop_ro(
      "closed", [](const Face& self) { return self.writer().closed(); },
      "Whether :meth:`close` was called.");
  type.def(
      "close", [](Face& self) { without_gil([&] { self.writer().close(); }); },
      R"(Ends the writer: what is queued is dropped. Closing again does nothing.

From any thread, even while another waits in this writer.)");
}

}  // namespace reverie::python
