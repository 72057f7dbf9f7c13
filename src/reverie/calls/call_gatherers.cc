#include "reverie/calls/call_gatherers.h"

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

void CallGatherers::withdraw(std::set<InboundId>& requests) {
  for (const auto& gatherer : all()) {
    if (!requests.empty()) gatherer->withdraw(requests);
  }
}

void CallGatherers::close() {
  for (const auto& gatherer : all()) gatherer->close();
}

}  // namespace reverie
