#include "reverie/adapters/reverb/sample_call.h"

#include <string_view>
#include <utility>

namespace reverie {

SampleCall::SampleCall(std::size_t count, std::shared_ptr<const wire::ColumnNames> names,
                       SampleBatch batch)
    : count_(count), names_(std::move(names)), batch_(std::move(batch)) {
  batch_.clear();
  held_->names = names_;
}

Status SampleCall::take(const Ref<GrpcMessage>& message) {
  const auto packed = wire::read_packed_response(message->bytes());
  if (!packed.ok()) return internal_error("the server sent: {}", packed.status().message());
  if (!packed->samples.empty()) {
    is_packed_ = true;
    batch_.set_sampler_mass(packed->sampler_mass);
    return read_packed(message, packed->samples, *names_, count_ - batch_.size(), batch_,
                       held_->packed.emplace_back());
  }
  const auto entries = wire::read_sample_response(message->bytes());
  if (!entries.ok()) return internal_error("the server sent: {}", entries.status().message());
  for (const wire::SampleEntry& entry : *entries) {
    REVERIE_RETURN_IF_ERROR(take_entry(message, entry));
  }
  return {};
}

Status SampleCall::take_entry(const Ref<GrpcMessage>& message, const wire::SampleEntry& entry) {
  if (batch_.size() == count_) {
    return internal_error("the server sent more than the {} requested samples", count_);
  }
  if (entry.info) {
    info_ = *entry.info;
    info_message_ = message;
    has_info_ = true;
  }
  for (const wire::Bytes bytes : entry.chunks) {
    const auto offset = static_cast<std::size_t>(bytes.data() - message->bytes().data());
    Result<Ref<Chunk>> chunk =
        wire::read_chunk(Ref<GrpcMessage>(message)->view(offset, bytes.size()), schemas_);
    if (!chunk.ok()) return chunk.status().with_context("the server sent a malformed chunk");
    const ChunkKey key = (*chunk)->key();
    chunks_.insert_or_assign(key, std::move(chunk).value());
  }
  return entry.end_of_sequence ? finish_sample() : Status();
}

Status SampleCall::finish_sample() {
  if (!has_info_) return internal_error("the server sent a sample without its info");
  const auto find_chunk = [this](ChunkKey key) -> const Chunk* {
    const auto found = chunks_.find(key);
    return found == chunks_.end() ? nullptr : found->second.get();
  };
  Result<Trajectory> trajectory = trajectories_.read(info_.item, *names_, find_chunk);
  if (!trajectory.ok()) {
    return data_loss("item {} of the server cannot be read: {}", info_.item.key,
                     trajectory.status().message());
  }
  held_->trajectories.push_back(std::move(trajectory).value());
  SampledItem sampled;
  sampled.key = info_.item.key;
  sampled.ticket = Ticket::unpack(info_.item.key);
  sampled.probability = info_.probability;
  sampled.priority = info_.item.priority;
  sampled.inserted_at_ns = info_.item.inserted_at_ns;
  sampled.table_size = info_.table_size;
  sampled.times_sampled = info_.item.times_sampled;
  sampled.trajectory = held_->trajectories.back().view();
  batch_.add(sampled);
  if (info_.rate_limited) batch_.set_rate_limited();
  has_info_ = false;
  chunks_.clear();
  return {};
}

SampleResult SampleCall::finish(const Status& status) {
  SampleResult result;
  result.status = is_complete() ? Status() : status;
  if (!is_complete() && status.ok()) {
    result.status =
        internal_error("the server ended the stream after {} of {} samples", batch_.size(), count_);
  }
  if (!batch_.empty()) {
    // The views move with their vector's elements, not with the vector.
    if (result.status.code() == StatusCode::kDeadlineExceeded) batch_.set_rate_limited();
    if (!is_packed_) batch_.set_drawn_at({calendar_ns()});
    batch_.add_pin(Pin(held_, 0));
  }
  result.batch = std::move(batch_);
  return result;
}

}  // namespace reverie
