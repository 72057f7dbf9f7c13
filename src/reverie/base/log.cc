#include "reverie/base/log.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "reverie/base/mutex.h"

namespace reverie {
namespace {

struct SinkHolder {
  Mutex mutex;
  std::shared_ptr<const LogSink> sink REVERIE_GUARDED_BY(mutex);
};

SinkHolder& holder() {
  static auto* const instance = new SinkHolder;  // outlives every thread that may still log
  return *instance;
}

void log_to_stderr(LogLevel level, std::string_view text) {
  const char* const name = level == LogLevel::kInfo      ? "info"
                           : level == LogLevel::kWarning ? "warning"
                                                         : "error";
  std::fprintf(stderr, "reverie %s: %.*s\n", name, static_cast<int>(text.size()), text.data());
}

}  // namespace

void set_log_sink(LogSink sink) {
  auto shared = sink ? std::make_shared<const LogSink>(std::move(sink)) : nullptr;
  MutexLock lock(holder().mutex);
  std::swap(holder().sink, shared);
}

void log_message(LogLevel level, std::string_view text) {
  std::shared_ptr<const LogSink> sink;
  {
    MutexLock lock(holder().mutex);
    sink = holder().sink;
  }
  if (sink) {
    (*sink)(level, text);
  } else {
    log_to_stderr(level, text);
  }
}

}  // namespace reverie
