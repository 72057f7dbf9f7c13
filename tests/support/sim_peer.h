// A node of sim::Network that runs the real logic of a peer, with calls by name over streams that
// may be cut, for tests of cores that are built on calls.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "reverie/rpc/frame.h"
#include "reverie/rpc/peer_core.h"
#include "reverie/sim/network.h"

namespace reverie {

class SimPeer : public sim::Node, public PeerEffects {
 public:
  SimPeer(sim::Network& network, sim::NodeId node, std::string name, std::string token = {},
          PeerOptions options = {})
      : network_(network), node_(node) {
    options.name = std::move(name);
    options.token = std::move(token);
    options.run = {network.random().next(), network.random().next()};
    options.random = [this] { return network_.random().next(); };
    peer_ = std::make_unique<PeerCore>(std::move(options), *this);
  }

  PeerCore& peer() { return *peer_; }
  TimePoint now() const { return network_.now(node_); }
  void listen(const std::string& address) {
    network_.listen(node_, address);
    peer_->add_address(address, now());
  }
  void connect(const std::string& address) {
    peer_->connect(address, now());
    settle();
  }

  // --- sim::Node
  void on_connected(sim::EndId end) override {
    const LinkId link = links_by_end_[end];
    readers_.insert_or_assign(end, FrameReader(FrameLimits()));
    peer_->link_up(link, "10.0.0.1", now());
    settle();
  }
  void on_accepted(sim::EndId end, const std::string& from) override {
    const LinkId link = peer_->accepted(from, now());
    links_by_end_[end] = link;
    ends_[link] = end;
    readers_.insert_or_assign(end, FrameReader(FrameLimits()));
    settle();
  }
  void on_bytes(sim::EndId end, std::span<const std::byte> bytes) override {
    const auto reader = readers_.find(end);
    if (reader == readers_.end()) return;
    const LinkId link = links_by_end_[end];
    std::vector<Frame> frames;
    ASSERT_TRUE(reader->second.feed(bytes, frames).ok());
    peer_->heard(link, now());
    for (Frame& frame : frames) peer_->received(link, std::move(frame), now());
    settle();
  }
  void on_closed(sim::EndId end) override {
    const LinkId link = links_by_end_[end];
    forget(link);
    peer_->link_down(link, unavailable("cut"), now());
    settle();
  }

  // --- PeerEffects
  void dial(LinkId link, const std::string& address) override {
    const sim::EndId end = network_.connect(node_, address);
    ends_[link] = end;
    links_by_end_[end] = link;
  }
  void send(LinkId link, const FrameHeader& header,
            std::shared_ptr<const Message> message) override {
    const auto frame_head = encode_frame_header(header, *message);
    std::vector<std::byte> bytes(frame_head.begin(), frame_head.end());
    const auto name = std::as_bytes(std::span(message->name));
    bytes.insert(bytes.end(), name.begin(), name.end());
    bytes.insert(bytes.end(), message->payload.head.begin(), message->payload.head.end());
    std::vector<std::byte> bulk;
    for (const BulkPiece& piece : message->payload.bulk) {
      bulk.resize(Payload::padded(bulk.size()));
      bulk.insert(bulk.end(), piece.bytes.begin(), piece.bytes.end());
    }
    bytes.insert(bytes.end(), bulk.begin(), bulk.end());
    network_.send(ends_.at(link), std::move(bytes));
  }
  void hang_up(LinkId link) override {
    network_.close(ends_.at(link));
    forget(link);
  }
  void trust(LinkId, const std::string&) override {}
  void deliver(Request request) override { requests_.push_back(std::move(request)); }
  void withdraw(InboundId request) override { withdrawn_.push_back(request); }
  void complete(CallId call, CallResult result) override {
    results_.emplace_back(call, std::move(result));
  }

  std::function<void()> on_receipt(InboundId message, FrameKind kind) override {
    return [given = given_, message, kind] { given->emplace_back(message, kind); };
  }

  // Handles due ticks and arrived events until nothing is left, and schedules the next wake-up.
  void settle() {
    do {
      if (peer_->next_tick() <= now()) peer_->tick(now());
      for (Request& request : std::exchange(requests_, {})) on_request(std::move(request));
      for (const InboundId request : std::exchange(withdrawn_, {})) on_withdrawn(request);
      for (auto& [call, result] : std::exchange(results_, {})) on_result(call, std::move(result));
      step();
      for (const auto& [message, kind] : std::exchange(*given_, {})) {
        peer_->copied(message, kind, now());
      }
    } while (!requests_.empty() || !withdrawn_.empty() || !results_.empty() || !given_->empty());
    const TimePoint next = std::min(peer_->next_tick(), next_step());
    if (next == TimePoint::max() || (wakes_at_ > now() && wakes_at_ <= next)) return;
    wakes_at_ = next;
    network_.at(node_, next, [this] { settle(); });
  }

 protected:
  virtual void on_request(Request request) = 0;
  virtual void on_withdrawn(InboundId) {}
  virtual void on_result(CallId, CallResult) {}
  // Does what is due, and carries out the core's effects.
  virtual void step() {}
  virtual TimePoint next_step() const { return TimePoint::max(); }

  sim::Network& network() { return network_; }
  sim::NodeId node() const { return node_; }

 private:
  void forget(LinkId link) {
    const auto end = ends_.find(link);
    if (end == ends_.end()) return;
    readers_.erase(end->second);
    ends_.erase(end);
  }

  sim::Network& network_;
  const sim::NodeId node_;
  std::unique_ptr<PeerCore> peer_;
  std::map<LinkId, sim::EndId> ends_;
  std::map<sim::EndId, LinkId> links_by_end_;
  std::map<sim::EndId, FrameReader> readers_;
  std::vector<Request> requests_;
  std::vector<InboundId> withdrawn_;
  std::vector<std::pair<CallId, CallResult>> results_;
  // The receipts that were given.
  std::shared_ptr<std::vector<std::pair<InboundId, FrameKind>>> given_ =
      std::make_shared<std::vector<std::pair<InboundId, FrameKind>>>();
  TimePoint wakes_at_{};
};

}  // namespace reverie
