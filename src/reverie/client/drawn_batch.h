// DrawnBatch: what one sample call comes to: the samples, their rows as arrays, and their weights.
#pragma once

#include <optional>
#include <vector>

#include "reverie/client/batch.h"
#include "reverie/client/corrupt_items.h"
#include "reverie/service/blocking.h"

namespace reverie {

struct DrawnBatch {
  SampleBatch samples;
  Batch batch;
  std::vector<float> weights;  // empty unless they were asked for
};

// How a batch's importance weights are made.
struct Weighing {
  std::optional<double> beta = {};  // without it there are no weights
  bool over_table = false;          // divided by the largest weight of the table, not of the batch
};

// How a batch's arrays are made.
struct Gathering {
  BatchOptions options = {};
  Weighing weighing = {};
  OnCorrupt on_corrupt = OnCorrupt::kRemove;
};

// Gathers the samples of `result`, which came for a request like `like`, and weighs them. Returns
// result.status where nothing else is wrong. On an error the samples may still be in `result`.
// UNIMPLEMENTED for weights over a table that does not tell its least probability.
Status gather(ReplayService& service, const SampleRequest& like, SampleResult& result,
              const Gathering& gathering, const WaitOptions& wait, DrawnBatch& drawn);

// A request with the same arguments, without the memory that it lent.
SampleRequest like_of(const SampleRequest& request);

}  // namespace reverie
