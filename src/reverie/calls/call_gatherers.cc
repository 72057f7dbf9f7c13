#include "reverie/calls/call_gatherers.h"

#include <algorithm>
#include <utility>

namespace reverie {

void CallGatherers::add(const std::shared_ptr<CallGatherer>& gatherer) {
  MutexLock lock(mutex_);
  std::erase_if(gatherers_, [](const auto& other) { return other.expired(); });
  gatherers_.push_back(gatherer);
}

std::vector<std::shared_ptr<CallGatherer>> CallGatherers::all() {
  std::vector<std::shared_ptr<CallGatherer>> found;
  MutexLock lock(mutex_);
  for (const auto& one : gatherers_) {
    if (auto kept = one.lock()) found.push_back(std::move(kept));
  }
  return found;
}

bool CallGatherers::withdraw(InboundId request) {
  const auto gatherers = all();
  return std::any_of(gatherers.begin(), gatherers.end(),
                     [&](const auto& gatherer) { return gatherer->withdraw(request); });
}

void CallGatherers::close() {
  for (const auto& gatherer : all()) gatherer->close();
}

}  // namespace reverie
