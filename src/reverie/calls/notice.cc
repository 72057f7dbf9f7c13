#include "reverie/calls/notice.h"

namespace reverie {

Result<std::shared_ptr<Notice>> Notice::open(std::shared_ptr<Peer> peer, std::string function) {
  const auto is_given = std::make_shared<std::atomic<bool>>(false);
  const auto on_call = [is_given, answerer = peer->answerer()](const Request& request) {
    *is_given = true;
    answerer.answer(request.id, Payload());
  };
  REVERIE_RETURN_IF_ERROR(peer->define(function, on_call));
  return std::shared_ptr<Notice>(new Notice(std::move(peer), std::move(function), is_given));
}

Notice::~Notice() {
  (void)peer_->undefine(function_);
}

}  // namespace reverie
