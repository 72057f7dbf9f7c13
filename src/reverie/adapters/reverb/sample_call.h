// SampleCall: one request for samples to a server of Reverb's protocol. Collects the parts of each
// sample, keeps its chunks as received, and returns all of them as one batch. The tickets of such a
// batch are the items' keys: the protocol has no others. Reverie's servers send packed samples
// instead (packed_format.h), which are faster to read.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "reverie/grpc/grpc_message.h"
#include "reverie/native_wire/packed_reader.h"
#include "reverie/reverb_wire/chunk_data.h"
#include "reverie/reverb_wire/requests.h"
#include "reverie/service/replay_service.h"

namespace reverie {

// Not thread-safe.
class SampleCall {
 public:
  // Expects `count` samples, whose column names are `names`.
  SampleCall(std::size_t count, std::shared_ptr<const wire::ColumnNames> names, SampleBatch batch);

  // Takes the server's next message. On an error, which says what was malformed, the call must end.
  Status take(const Ref<GrpcMessage>& message);
  // How many samples were asked for.
  std::size_t count() const { return count_; }
  // Whether all samples are here.
  bool is_complete() const { return batch_.size() == count_; }

  // The samples that have arrived. `status` says why there are no more; it is ignored if all have.
  SampleResult finish(const Status& status);

 private:
  // The trajectories of a batch, which their pin holds.
  class Held final : public PinOwner {
   public:
    void unpin(std::uint64_t) noexcept override {}
    std::vector<Trajectory> trajectories;
    std::vector<PackedSamples> packed;
    std::shared_ptr<const wire::ColumnNames> names;
  };

  Status take_entry(const Ref<GrpcMessage>& message, const wire::SampleEntry& entry);
  Status finish_sample();

  const std::size_t count_;
  const std::shared_ptr<const wire::ColumnNames> names_;
  SampleBatch batch_;
  bool is_packed_ = false;
  std::shared_ptr<Held> held_ = std::make_shared<Held>();
  wire::SchemaCache schemas_;
  wire::TrajectoryReader trajectories_;

  // The sample that is being received.
  bool has_info_ = false;
  Ref<GrpcMessage> info_message_;  // viewed by info_
  wire::WireSampleInfo info_;
  std::map<ChunkKey, Ref<Chunk>> chunks_;
};

}  // namespace reverie
