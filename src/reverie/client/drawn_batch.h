// DrawnBatch: the result of one sample call: the samples, their rows as arrays, and their weights.
#pragma once

#include <optional>
#include <vector>

#include "reverie/gather/batch.h"
#include "reverie/gather/corrupt_items.h"
#include "reverie/service/blocking.h"

namespace reverie {

struct DrawnBatch {
  SampleBatch samples;
  Batch batch;
  std::vector<float> weights;  // empty unless requested
};

// How to compute a batch's importance weights.
struct Weighing {
  std::optional<double> beta = {};  // none: no weights
  bool over_table = false;          // normalised by the table's largest weight, not the batch's
};

// How to make a batch's arrays.
struct Gathering {
  BatchOptions options = {};
  Weighing weighing = {};
  OnCorrupt on_corrupt = OnCorrupt::kRemove;
};

// Gathers the samples of `result`, from a request like `like`, and computes weights. Returns
// result.status if nothing else is wrong. On an error the samples may still be in `result`.
// UNIMPLEMENTED for weights over a table whose least probability is unknown.
Status gather(ReplayService& service, const SampleRequest& like, SampleResult& result,
              const Gathering& gathering, const WaitOptions& wait, DrawnBatch& drawn);

// A request with the same arguments, without the batch's memory.
SampleRequest like_of(const SampleRequest& request);

}  // namespace reverie
