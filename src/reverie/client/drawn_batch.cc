// Tested in batch_stream_test.cc and sample_feed_test.cc.
#include "reverie/client/drawn_batch.h"

#include <utility>

#include "reverie/rl/importance_weights.h"

namespace reverie {
namespace {

Status weigh(const Weighing& weighing, DrawnBatch& drawn) {
  const SampleBatch& samples = drawn.samples;
  if (!weighing.beta || samples.empty()) return {};
  drawn.weights.resize(samples.size());
  if (!weighing.over_table) {
    return importance_weights(samples.probabilities(),
                              static_cast<std::size_t>(samples.table_size()), *weighing.beta,
                              WeightScale::kBatchMaximum, drawn.weights);
  }
  if (samples.least_probability() <= 0) {
    return unimplemented(
        "weights='buffer' needs the smallest probability in the table, which only a store in this "
        "process tells, and a sampler that ships with it; use weights='batch'");
  }
  return importance_weights_over(samples.probabilities(), samples.least_probability(),
                                 *weighing.beta, drawn.weights);
}

}  // namespace

Status gather(ReplayService& service, const SampleRequest& like, SampleResult& result,
              const Gathering& gathering, const WaitOptions& wait, DrawnBatch& drawn) {
  REVERIE_RETURN_IF_ERROR(assemble_decodable(service, like, gathering.on_corrupt, wait,
                                             gathering.options, result, drawn.batch));
  drawn.samples = std::move(result.batch);
  REVERIE_RETURN_IF_ERROR(weigh(gathering.weighing, drawn));
  return result.status;
}

SampleRequest like_of(const SampleRequest& request) {
  SampleRequest like;
  like.table = request.table;
  like.count = request.count;
  like.min_count = request.min_count;
  like.distinct = request.distinct;
  like.wants_least = request.wants_least;
  like.deadline = request.deadline;
  return like;
}

}  // namespace reverie
