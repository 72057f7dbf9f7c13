// Messages that the library has no caller to return to. Never on a hot path.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "reverie/base/format.h"

namespace reverie {

enum class LogLevel { kInfo, kWarning, kError };

using LogSink = std::function<void(LogLevel, std::string_view)>;

// Replaces the sink of the process (at first: a line on stderr). An empty one restores it.
void set_log_sink(LogSink sink);

// Thread-safe. Calls the sink on this thread, which may hold a lock: a sink must not wait.
void log_message(LogLevel level, std::string_view text);

template <typename... Args>
void log_warning(fmt::format_string<Args...> pattern, Args&&... args) {
  log_message(LogLevel::kWarning, format_text(pattern, fmt::make_format_args(args...)));
}

}  // namespace reverie
