// A link between a store's client and its server (adapters/peer/store_link.h) over a stream of
// sim::Network. As on a socket, only few frames are in transit and the others wait, so that a slow
// reader holds its sender back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "reverie/adapters/peer/store_link.h"
#include "reverie/base/check.h"
#include "reverie/rpc/frame.h"
#include "reverie/sim/network.h"

namespace reverie {

class SimStoreLink final : public StoreLink, public std::enable_shared_from_this<SimStoreLink> {
 public:
  static constexpr std::uint64_t kUnreadMax = 4;         // frames in transit
  static constexpr std::size_t kQueuedBytesGood = 2048;  // bytes that wait

  SimStoreLink(sim::Network& network, sim::NodeId node, sim::EndId end,
               std::weak_ptr<StoreLinkEvents> events)
      : network_(network), node_(node), end_(end), events_(std::move(events)) {}

  // --- StoreLink
  void start(std::string_view) override {}
  void trust() override {}
  void send(const FrameHeader& header, std::shared_ptr<const Message> message) override {
    if (is_over_) return;
    queue_.push_back(encoded(header, *message));
    queued_bytes_ += queue_.back().size();
    flush();
  }
  void hang_up() override {
    if (is_over_) return;
    for (std::vector<std::byte>& bytes : queue_) network_.send(end_, std::move(bytes));
    drop();
    network_.close(end_);
  }
  bool has_room() const override {
    const bool has = queued_bytes_ < kQueuedBytesGood;
    lacks_room_ = lacks_room_ || !has;
    return has;
  }
  bool is_over() const override { return is_over_; }
  std::string transport() override { return "simulation"; }
  bool offer_map(const std::shared_ptr<SharedArena>&) override { return false; }
  std::shared_ptr<const ArenaView> map() override { return nullptr; }
  bool look(const std::function<bool()>& is_done) override { return is_done(); }
  void post(std::function<void()> work) override {
    network_.at(node_, network_.now(node_), std::move(work));
  }

  // --- Events of its node
  void on_bytes(std::span<const std::byte> bytes) {
    if (is_over_) return;
    std::vector<Frame> frames;
    REVERIE_CHECK(reader_.feed(bytes, frames).ok());
    for (const Frame& frame : frames) {
      if (frame.header.kind == FrameKind::kAck) read_ = std::max(read_, frame.header.received);
    }
    std::erase_if(frames, [](const Frame& frame) { return frame.header.kind == FrameKind::kAck; });
    flush();
    if (frames.empty()) return;
    received_ += frames.size();
    network_.send(end_, encoded({FrameKind::kAck, 0, received_, 0}, Message()));
    if (const auto to = events_.lock()) to->on_frames(std::move(frames));
  }
  void on_closed() {
    if (is_over_) return;
    drop();
    if (const auto to = events_.lock()) to->on_lost(unavailable("the stream was cut"));
  }
  // For a killed node: it sends nothing more.
  void drop() {
    is_over_ = true;
    queue_.clear();
  }

 private:
  static std::vector<std::byte> encoded(const FrameHeader& header, const Message& message) {
    const auto head = encode_frame_header(header, message);
    std::vector<std::byte> bytes(head.begin(), head.end());
    const auto name = std::as_bytes(std::span(message.name));
    bytes.insert(bytes.end(), name.begin(), name.end());
    bytes.insert(bytes.end(), message.payload.head.begin(), message.payload.head.end());
    std::vector<std::byte> bulk;
    for (const BulkPiece& piece : message.payload.bulk) {
      bulk.resize(Payload::padded(bulk.size()));
      bulk.insert(bulk.end(), piece.bytes.begin(), piece.bytes.end());
    }
    bytes.insert(bytes.end(), bulk.begin(), bulk.end());
    return bytes;
  }
  void flush() {
    while (!queue_.empty() && sent_ - read_ < kUnreadMax) {
      queued_bytes_ -= queue_.front().size();
      network_.send(end_, std::move(queue_.front()));
      queue_.pop_front();
      ++sent_;
    }
    if (!lacks_room_ || queued_bytes_ >= kQueuedBytesGood) return;
    lacks_room_ = false;
    post([self = shared_from_this()] {
      if (self->is_over_) return;
      if (const auto to = self->events_.lock()) to->on_room();
    });
  }

  sim::Network& network_;
  const sim::NodeId node_;
  const sim::EndId end_;
  const std::weak_ptr<StoreLinkEvents> events_;
  FrameReader reader_{FrameLimits()};
  std::deque<std::vector<std::byte>> queue_;
  std::size_t queued_bytes_ = 0;
  std::uint64_t sent_ = 0;
  std::uint64_t read_ = 0;  // how many of them the other side has read
  std::uint64_t received_ = 0;
  mutable bool lacks_room_ = false;
  bool is_over_ = false;
};

}  // namespace reverie
