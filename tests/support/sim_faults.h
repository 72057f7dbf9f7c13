// The faults of a simulation, drawn before it runs: the run is then a function of its seed and this
// list, and a failing one is shrunk to the faults that it needs (sim/shrink.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "reverie/base/clock.h"
#include "reverie/base/format.h"
#include "reverie/base/random.h"
#include "reverie/sim/shrink.h"

namespace reverie {

struct SimFault {
  TimePoint when;
  double act = 0;  // in [0, 1): which fault it is
  std::size_t who = 0;
  std::size_t other = 0;
  std::uint64_t value = 0;
};

// Until `end`, with pauses below `pause_max`. `who` and `other` are below `node_count`.
inline std::vector<SimFault> draw_faults(std::uint64_t seed, TimePoint end, Duration pause_max,
                                         std::size_t node_count) {
  Random draws(seed);
  std::vector<SimFault> faults;
  for (TimePoint when{}; when < end;) {
    const auto pause = draws.below(static_cast<std::uint64_t>(pause_max.count()));
    when = when + Duration(static_cast<std::int64_t>(pause));
    SimFault& fault = faults.emplace_back();
    fault.when = when;
    fault.act = draws.uniform();
    fault.who = draws.below(node_count);
    fault.other = draws.below(node_count);
    fault.value = draws.next();
  }
  return faults;
}

// The fewest of `faults` with which wrong(faults) still returns a text, as a text.
inline std::string fewest_faults(
    const std::vector<SimFault>& faults,
    const std::function<std::string(const std::vector<SimFault>&)>& wrong) {
  std::string text;
  for (const SimFault& fault : sim::shrink<SimFault>(
           faults, [&](const std::vector<SimFault>& some) { return !wrong(some).empty(); })) {
    text += format("\n{:9.6f} s: act {:.4f}, {} {}, {:x}", to_seconds(fault.when - TimePoint{}),
                   fault.act, fault.who, fault.other, fault.value);
  }
  return text;
}

}  // namespace reverie
