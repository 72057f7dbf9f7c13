// SilentLink: a store's link that takes whatever is sent, and brings nothing.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "reverie/adapters/peer/store_link.h"

namespace reverie::testing {

class SilentLink : public StoreLink {
 public:
  void start(std::string_view) override {}
  void trust() override {}
  void send(const FrameHeader&, std::shared_ptr<const Message>) override {}
  void hang_up() override {}
  bool has_room() const override { return true; }
  bool is_over() const override { return false; }
  std::string transport() override { return "nothing"; }
  bool offer_map(const std::shared_ptr<SharedArena>&) override { return false; }
  std::shared_ptr<const ArenaView> map() override { return nullptr; }
  bool look(const std::function<bool()>& is_done) override { return is_done(); }
  void post(std::function<void()>) override {}
};

}  // namespace reverie::testing
