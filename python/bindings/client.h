// What Python holds of a client: the door, and where it was opened.
#pragma once

#include <memory>
#include <utility>

#include "reverie/base/fork.h"
#include "reverie/replay/local_service.h"
#include "reverie/service/replay_service.h"

namespace reverie::python {

class ClientHandle {
 public:
  // `local` is the same service where the store lies in this process, else null.
  ClientHandle(std::shared_ptr<ReplayService> service, std::shared_ptr<LocalService> local)
      : service_(std::move(service)), local_(std::move(local)) {}

  const std::shared_ptr<ReplayService>& service() const { return service_; }
  const std::shared_ptr<LocalService>& local() const { return local_; }
  // FAILED_PRECONDITION in a forked child.
  Status check() const { return fork_guard_.check("Client"); }

 private:
  std::shared_ptr<ReplayService> service_;
  std::shared_ptr<LocalService> local_;
  ForkGuard fork_guard_;
};

}  // namespace reverie::python
