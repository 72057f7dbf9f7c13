// What Python holds of a client: the door, and where it was opened.
#pragma once

#include <map>
#include <memory>
#include <string>
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
  // By table, as far as it was asked: whether its samples may be drawn ahead of their reader, as
  // they are not spent. For all copies; guarded by the interpreter's lock.
  std::map<std::string, bool>& tables_drawn_ahead() const { return *tables_drawn_ahead_; }
  // FAILED_PRECONDITION in a forked child.
  Status check() const { return fork_guard_.check("Client"); }

 private:
  std::shared_ptr<ReplayService> service_;
  std::shared_ptr<LocalService> local_;
  std::shared_ptr<std::map<std::string, bool>> tables_drawn_ahead_ =
      std::make_shared<std::map<std::string, bool>>();
  ForkGuard fork_guard_;
};

}  // namespace reverie::python
