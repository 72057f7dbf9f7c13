// Batch: sampled items as arrays [B, T, ...], one for each column.
//
//     item 3:  pieces { chunk 7, rows 6..9 } { chunk 8, rows 0..1 }
//     obs   [B, 6, 84, 84]    row 3 = two memcpy
//
// One gather: each row is copied once, from its chunk into its place in the batch, outside every
// lock, with the next items' cache lines prefetched.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "reverie/record/external_files.h"
#include "reverie/service/sample_batch.h"
#include "reverie/tensor/buffer.h"

namespace reverie {

struct BatchColumn {
  TensorSpec spec;  // shape [B, T, ...], or [B, ...] for a squeezed column
  // Row-major. For kBytes and kString: the elements one after another, as in TensorView.
  Buffer bytes;
};

struct Batch {
  std::vector<BatchColumn> columns;
  // Rows of each item's longest column, if BatchOptions::pad was set; else empty.
  std::vector<std::int64_t> lengths;
  std::string structure;
};

struct BatchOptions {
  // Items of unequal length: false refuses them; true appends zeros. True fills `lengths`, also
  // where all items of the batch happen to have one length.
  bool pad = false;
  Allocator* allocator = nullptr;  // null: the C heap
  // Finds external columns; null: FAILED_PRECONDITION for items that have any.
  ExternalFiles* files = nullptr;
};

// The approximate size of a batch of these samples, as if all were as large as the first, and each
// element of text 64 bytes. They are still pinned.
std::size_t gathered_bytes(const SampleBatch& samples);

// Requires a non-empty batch that is still pinned. INVALID_ARGUMENT, naming the column, if items
// differ in columns, types, shapes or (without pad) lengths.
Result<Batch> assemble(const SampleBatch& samples, const BatchOptions& options);

// The same, reusing buffers of an earlier batch if shapes and types are equal.
Status assemble_into(const SampleBatch& samples, const BatchOptions& options, Batch& batch);
// The same for some items of a batch.
Status assemble_into(std::span<const TrajectoryView> items, const BatchOptions& options,
                     Batch& batch);

}  // namespace reverie
