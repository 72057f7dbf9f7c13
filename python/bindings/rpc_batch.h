// Calls that are served together: their arguments joined, and a result dealt out to them.
//
//     calls    policy(obs 1)   policy(obs 2)   policy(obs 3)
//                    \               |               /
//                 one array: row 0, row 1, row 2, padding     each written once, by C++
//                                    |
//                         the function, or the program
//                                    |
//     answers     row 0           row 1           row 2       read from the result's memory
//
// No Python code runs for a single call: the interpreter's lock is taken once a batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "reverie/rpc/peer.h"

namespace reverie::python {

namespace nb = nanobind;

// How values other than arrays are batched.
enum class BatchLeaves : std::uint8_t {
  kStack,  // numbers as arrays, of others a tuple with one entry a call
  kEach,   // the tuple for numbers too
  kFirst,  // those of the first call, and results reach all callers
};

struct RpcBatchOptions {
  std::size_t size = 1;
  bool is_cat = false;  // callers bring batches; else a row each
  bool pads = false;    // repeats the last row until there are `size`
  nb::object device;    // where torch's tensors go; None: the CPU
  BatchLeaves leaves = BatchLeaves::kStack;
};

// The interpreter's lock guards it.
class RpcBatch {
 public:
  // Calls whose arguments cannot be read are answered so, and left out.
  RpcBatch(std::shared_ptr<Peer> peer, std::shared_ptr<const RpcBatchOptions> options,
           std::vector<Request> requests);

  // (args, kwargs) of all. Invalid where they do not fit together, which the callers were told, or
  // where no call is left. Once.
  nb::object join();
  // Deals a result out. What is wrong with it its callers are told.
  void answer(nb::handle value);
  // Without effect on what was answered.
  void fail(nb::handle error);
  const std::string& function() const { return function_; }
  std::size_t call_count() const { return calls_.size(); }

 private:
  struct Call {
    InboundId id;
    nb::object arguments;  // until they are joined
    std::size_t rows = 1;
  };
  void deal_out(nb::handle value);

  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<const RpcBatchOptions> options_;
  std::string function_;
  std::vector<Call> calls_;
  std::size_t rows_ = 0;  // of all, padding included
  bool is_answered_ = false;
  LeafReader reader_;
};

// What reverie/rpc_batches.py has for the uncommon: `join_leaves(leaves, cat, pad, path)` for
// arrays that are not all alike, `error_parts(error)` for what a caller learns about an exception.
void set_rpc_batch_helpers(nb::object join_leaves, nb::object error_parts);
// What the caller of a request learns about an exception, or a text.
RemoteError remote_error_of(nb::handle error);

}  // namespace reverie::python
