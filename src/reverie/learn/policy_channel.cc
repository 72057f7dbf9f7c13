// Tested in tests/integration/remote_actors_test.cc.
#include "reverie/learn/policy_channel.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie {
namespace {

constexpr std::string_view kParameters = "parameters";

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

Status read_policy(const Payload& value, std::span<float> to) {
  ValueReader reader(value);
  REVERIE_ASSIGN_OR_RETURN(const ValueToken dict, reader.next());
  if (dict.kind == ValueKind::kDict && dict.count == 1) {
    REVERIE_ASSIGN_OR_RETURN(const ValueToken key, reader.next());
    if (key.kind == ValueKind::kText && text_of(key.bytes) == kParameters) {
      REVERIE_ASSIGN_OR_RETURN(const ValueToken found, reader.next());
      if (found.kind == ValueKind::kTensor && found.dtype == DType::kFloat32 &&
          found.bytes.size() == to.size_bytes()) {
        std::memcpy(to.data(), found.bytes.data(), found.bytes.size());
        return {};
      }
    }
  }
  return data_loss("the weights are no policy of {} numbers; their learner trains another network",
                   to.size());
}

}  // namespace

Status publish_policy(Weights& channel, std::uint64_t version, const nn::Parameters& parameters) {
  Payload payload;
  ValueWriter writer(payload);
  writer.begin(ValueKind::kDict, 1);
  writer.text(kParameters);
  const std::int64_t shape[] = {static_cast<std::int64_t>(parameters.float_count())};
  // Lent only until publish() has copied it.
  writer.lent_tensor(DType::kFloat32, shape, std::as_bytes(parameters.span()), TensorMaker::kNumpy,
                     nullptr);
  return channel.publish(version, payload);
}

PolicyChannel::PolicyChannel(Weights& channel, std::size_t float_count, Duration answer_within)
    : channel_(channel), answer_within_(answer_within), parameters_(float_count) {}

Result<nn::PublishedParameters::Version> PolicyChannel::newest() {
  REVERIE_ASSIGN_OR_RETURN(Weights::VersionPtr got,
                           channel_.pull(Clock::system().now() + answer_within_));
  if (!got) return not_found("no policy has been published yet");
  if (got != taken_) {
    REVERIE_RETURN_IF_ERROR(read_policy(got->value, parameters_.span()));
    taken_ = std::move(got);
  }
  return nn::PublishedParameters::Version{&parameters_, taken_->version};
}

}  // namespace reverie
