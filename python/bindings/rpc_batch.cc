#include "python/bindings/rpc_batch.h"

#include <deque>
#include <optional>
#include <utility>

#include <nanobind/stl/string.h>

#include "python/bindings/convert.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc_batch_joiner.h"
#include "python/bindings/rpc_batch_nests.h"
#include "python/bindings/rpc_batch_splitter.h"
#include "python/bindings/rpc_values.h"
#include "reverie/base/format.h"

namespace reverie::python {
namespace {

// Never destroyed: the interpreter may be gone when the library's statics are.
struct BatchHelpers {
  nb::object join_leaves;
  nb::object error_parts;
};

BatchHelpers& helpers() {
  static auto* const instance = new BatchHelpers;
  return *instance;
}

}  // namespace

void set_rpc_batch_helpers(nb::object join_leaves, nb::object error_parts) {
  helpers() = {std::move(join_leaves), std::move(error_parts)};
}

RemoteError remote_error_of(nb::handle error) {
  try {
    const nb::object parts = helpers().error_parts(error);
    return {StatusCode::kInternal, nb::cast<std::string>(parts[0]), nb::cast<std::string>(parts[1]),
            nb::cast<std::string>(parts[2])};
  } catch (nb::python_error&) {  // its own text raises
    return {StatusCode::kInternal, type_name_of(error.ptr()), "an error without a text", ""};
  }
}

RemoteError remote_error_of(const std::exception& error) {
  const auto* const raised = dynamic_cast<const nb::python_error*>(&error);
  return raised != nullptr ? remote_error_of(raised->value())
                           : RemoteError{StatusCode::kInternal, "Error", error.what(), ""};
}

RpcBatch::RpcBatch(std::shared_ptr<Peer> peer, std::shared_ptr<DeviceTensors> devices,
                   Pickle pickle, std::shared_ptr<const RpcBatchOptions> options,
                   std::vector<Request> requests)
    : peer_(std::move(peer)),
      devices_(std::move(devices)),
      pickle_(pickle),
      options_(std::move(options)) {
  if (!requests.empty()) function_ = requests.front().function;
  calls_.reserve(requests.size());
  try {
    for (Request& request : requests) {
      Call call{request.id, arguments_of(*peer_, request, pickle_, devices_.get())};
      if (!call.arguments.is_valid() || (options_->is_cat && !count_rows(call))) continue;
      calls_.push_back(std::move(call));
    }
  } catch (const std::exception& error) {
    const RemoteError told = remote_error_of(error);
    for (const Request& request : requests) peer_->fail(request.id, told);
    throw;
  }
}

bool RpcBatch::count_rows(Call& call) {
  std::optional<std::size_t> first;
  std::size_t other = 0;
  try {
    const bool are_equal = each_array(call.arguments.ptr(), 0, [&](PyObject*, std::size_t rows) {
      if (!first) first = rows;
      other = rows;
      return rows == *first;
    });
    call.rows = first.value_or(1);
    if (are_equal) return true;
    peer_->fail(call.id, {StatusCode::kInvalidArgument, "",
                          format("the arrays of a call of '{}' have {} and {} rows; each must have "
                                 "as many as the others, since the rows of all callers are "
                                 "concatenated: pad the shorter ones, or call once for each",
                                 function_, call.rows, other),
                          ""});
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    peer_->fail(call.id, remote_error_of(error.value()));
  }
  return false;
}

nb::object RpcBatch::join() {
  if (calls_.empty()) return {};
  try {
    std::vector<PyObject*> nests;
    nests.reserve(calls_.size());
    for (const Call& call : calls_) {
      nests.push_back(call.arguments.ptr());
      rows_ += call.rows;
    }
    // Without a row there is none to repeat.
    const bool is_padded = options_->pads && rows_ > 0 && rows_ < options_->size;
    const std::size_t padding = is_padded ? options_->size - rows_ : 0;
    rows_ += padding;
    nb::object joined =
        RpcBatchJoiner(*options_, reader_, padding, helpers().join_leaves).join(nests, "");
    for (Call& call : calls_) call.arguments.reset();
    return joined;
  } catch (nb::python_error& error) {
    for (Call& call : calls_) call.arguments.reset();
    fail(error);
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    return {};
  }
}

void RpcBatch::answer(nb::handle value) {
  if (is_answered_) {
    raise(failed_precondition("this batch of {} calls of '{}' has been answered", calls_.size(),
                              function_));
  }
  try {
    split(value);
  } catch (nb::python_error& error) {
    fail(error);
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
  }
}

void RpcBatch::split(nb::handle value) {
  each_array(value.ptr(), 0, [this](PyObject*, std::size_t rows) {
    if (rows == rows_) return true;
    raise(
        invalid_argument("the function of a batch of {} rows gave an array of {}; each caller's "
                         "rows must be there",
                         rows_, rows));
  });
  drop_lent_arrays();
  std::deque<DeviceSender> senders;
  for (const Call& call : calls_) {
    senders.emplace_back(peer_, devices_, call.id, DeviceSender::Way{});
  }
  RpcBatchSplitter splitter(*options_, reader_, pickle_, senders, rows_);
  splitter.read(value.ptr(), 0);
  std::vector<Peer::Answer> answers;
  answers.reserve(calls_.size());
  std::size_t begin = 0;
  std::size_t size = 0;
  for (std::size_t i = 0; i < calls_.size(); ++i) {
    Payload payload;
    try {
      splitter.write(payload, begin, calls_[i].rows, i);
      senders[i].finish(payload);
      size += payload.bulk_bytes() + payload.head.size();
      answers.push_back({calls_[i].id, std::move(payload)});
    } catch (nb::python_error& error) {
      if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
      // This answer cannot be sent; the others are.
      peer_->fail(calls_[i].id, remote_error_of(error.value()));
    }
    begin += calls_[i].rows;
  }
  is_answered_ = true;
  const auto go = [&] { peer_->answer(std::move(answers), /*copies_bulk=*/true); };
  size <= kBriefBytes ? go() : without_gil(go);
}

void RpcBatch::fail(nb::handle error) {
  if (!PyUnicode_Check(error.ptr()) && !PyExceptionInstance_Check(error.ptr())) {
    raise_type_error(
        format("error is a {}; it must be an exception or a str", type_name_of(error.ptr())));
  }
  if (!is_answered_) fail_all(remote_error_of(error));
}

void RpcBatch::fail(const std::exception& error) {
  if (!is_answered_) fail_all(remote_error_of(error));
}

void RpcBatch::fail_all(const RemoteError& error) {
  if (std::exchange(is_answered_, true)) return;
  for (const Call& call : calls_) peer_->fail(call.id, error);
}

}  // namespace reverie::python
