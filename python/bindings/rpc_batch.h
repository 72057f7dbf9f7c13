// Calls that are served together: their arguments are joined, and the result is split.
//
//     calls    policy(obs 1)   policy(obs 2)   policy(obs 3)
//                    \               |               /
//                 one array: row 0, row 1, row 2, padding     each written once, by C++
//                                    |
//                         the function, or the program
//                                    |
//     answers     row 0           row 1           row 2       read from the result's memory
//
// No Python code runs for a single call: the interpreter's lock is taken once per batch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "python/bindings/rpc_values.h"
#include "reverie/rpc/peer.h"

namespace reverie::python {

namespace nb = nanobind;

// How values other than arrays are batched.
enum class BatchLeaves : std::uint8_t {
  kStack,  // numbers become arrays, others a tuple with one entry per call
  kEach,   // numbers become such a tuple too
  kFirst,  // the first call's value is taken, and every caller gets the whole result
};

struct RpcBatchOptions {
  std::size_t size = 1;
  bool is_cat = false;  // callers send batches; else a row each
  bool pads = false;    // repeats the last row until there are `size`
  nb::object device;    // where torch's tensors go; None: the CPU
  BatchLeaves leaves = BatchLeaves::kStack;
};

// The interpreter's lock guards it.
class RpcBatch {
 public:
  // Calls whose arguments cannot be read, or with `is_cat` have arrays of differing row counts, are
  // answered with that error, and left out. If it raises, which it does for Ctrl-C, all calls have
  // failed.
  RpcBatch(std::shared_ptr<Peer> peer, std::shared_ptr<DeviceTensors> devices, Pickle pickle,
           std::shared_ptr<const RpcBatchOptions> options, std::vector<Request> requests);

  // The joined (args, kwargs) of all calls. Invalid if they do not fit together, which is reported
  // to the callers, or if no call is left. What is no Exception, such as Ctrl-C, is also raised.
  // Call it once.
  nb::object join();
  // Splits a result among the callers. An error in it is reported to all of them; what is no
  // Exception is also raised.
  void answer(nb::handle value);
  // Does nothing if the batch was answered.
  void fail(nb::handle error);
  void fail(const std::exception& error);
  const std::string& function() const { return function_; }
  std::size_t call_count() const { return calls_.size(); }

 private:
  struct Call {
    InboundId id;
    nb::object arguments;  // until they are joined
    std::size_t rows = 1;
  };
  // With `is_cat`. False if the call's arrays differ in that, which its caller is told.
  bool count_rows(Call& call);
  void split(nb::handle value);
  void fail_all(const RemoteError& error);

  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<DeviceTensors> devices_;
  const Pickle pickle_;
  const std::shared_ptr<const RpcBatchOptions> options_;
  std::string function_;
  std::vector<Call> calls_;
  std::size_t rows_ = 0;  // of all, padding included
  bool is_answered_ = false;
  LeafReader reader_;
};

// Sets Python functions for the rare cases: `join_leaves(leaves, cat, pad, path)` joins arrays that
// differ in type or shape, `error_parts(error)` returns what a caller learns about an exception.
void set_rpc_batch_helpers(nb::object join_leaves, nb::object error_parts);
// What the caller of a request learns about an exception or a text.
RemoteError remote_error_of(nb::handle error);
// The same for an exception of C++, which may be one of Python's.
RemoteError remote_error_of(const std::exception& error);

}  // namespace reverie::python
