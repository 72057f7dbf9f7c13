// SampleCall: one request for samples, from a server of Reverb's protocol.
//
// Collects the parts of each sample until its end, keeps its chunks as they came, and hands all out
// as one batch. A ticket of such a batch is the item's key: the protocol has no other.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reverie/adapters/reverb/grpc_client.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Events come on one I/O thread.
class SampleCall final : public GrpcClientEvents {
 public:
  using Done = std::function<void(SampleResult)>;

  // Expects `count` samples, whose columns `names` names. `done` is called once, at the end.
  SampleCall(std::size_t count, std::shared_ptr<const wire::ColumnNames> names, SampleBatch batch,
             Done done);

  void on_message(Ref<GrpcMessage> message) override;
  void on_end(const Status& status) override;

 private:
  // The trajectories of a batch, which their pin holds.
  class Held final : public PinOwner {
   public:
    void unpin(std::uint64_t) noexcept override {}
    std::vector<Trajectory> trajectories;
    std::shared_ptr<const wire::ColumnNames> names;
  };

  Status take(const Ref<GrpcMessage>& message);
  Status take_entry(const Ref<GrpcMessage>& message, const wire::SampleEntry& entry);
  Status finish_sample();

  const std::size_t count_;
  const std::shared_ptr<const wire::ColumnNames> names_;
  SampleBatch batch_;
  Done done_;
  std::shared_ptr<Held> held_ = std::make_shared<Held>();
  wire::SchemaCache schemas_;
  wire::TrajectoryReader trajectories_;
  Status status_;  // of what came, when it was not what it should be

  // Of the sample that is coming in.
  bool has_info_ = false;
  Ref<GrpcMessage> info_message_;  // that info_ views
  wire::WireSampleInfo info_;
  std::map<ChunkKey, Ref<Chunk>> chunks_;
};

}  // namespace reverie
