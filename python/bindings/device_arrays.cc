#include "python/bindings/device_arrays.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <span>

#include <nanobind/stl/string.h>

#include "python/bindings/arrays.h"
#include "python/bindings/convert.h"
#include "python/bindings/gil.h"
#include "python/bindings/python_api.h"
#include "python/bindings/rpc.h"
#include "python/bindings/rpc_values.h"
#include "reverie/base/format.h"
#include "reverie/calls/pending_call.h"

namespace reverie::python {
namespace {

// Pinned memory is copied to several times as fast. It is worth a request to torch's allocator,
// which keeps it, for these sizes.
constexpr std::size_t kPinnedMin = std::size_t{1} << 20;
constexpr std::size_t kPinnedMax = std::size_t{256} << 20;
// How long to wait for what a program has queued for a device.
constexpr Duration kWorkMax = std::chrono::seconds(120);

// torch, if it uses a GPU.
nb::object torch_with_cuda() {
  nb::object torch = loaded_package("torch");
  if (!torch.is_valid() || !nb::hasattr(torch, "cuda")) return {};
  return nb::cast<bool>(torch.attr("cuda").attr("is_initialized")()) ? torch : nb::object();
}

std::uint64_t current_stream(const nb::object& torch, int device) {
  return nb::cast<std::uint64_t>(
      torch.attr("cuda").attr("current_stream")(device).attr("cuda_stream"));
}

std::uint64_t address_of(nb::handle tensor) {
  return nb::cast<std::uint64_t>(tensor.attr("data_ptr")());
}

std::string device_name(int device) {
  return format("cuda:{}", device);
}

nb::object torch_type(const nb::object& torch, DType dtype) {
  return torch.attr(std::string(dtype_name(dtype)).c_str());
}

// Without marks, and apart from the gradients of the tensor.
nb::object plain_values(nb::handle tensor) {
  return tensor.attr("detach")().attr("resolve_conj")().attr("resolve_neg")();
}

std::size_t size_of(const LeafView& view) {
  return static_cast<std::size_t>(element_count(view.shape)) * dtype_size_bytes(view.dtype);
}

// What a message has lent. Its end may come on any thread; the tensors are released by one that
// takes the interpreter's lock for it.
struct LentTensors {
  LentTensors(std::vector<std::shared_ptr<const void>> lent, std::weak_ptr<DeviceTensors> owner)
      : parts(std::move(lent)), devices(std::move(owner)) {}
  LentTensors(const LentTensors&) = delete;
  LentTensors& operator=(const LentTensors&) = delete;
  ~LentTensors() {
    const auto kept = devices.lock();
    parts.clear();
    if (!kept) return;
    kept->post([] {
      const GilAnywhere gil;
      if (gil) drop_lent_arrays();
    });
  }

  std::vector<std::shared_ptr<const void>> parts;
  const std::weak_ptr<DeviceTensors> devices;
};

}  // namespace

nb::object host_copy(nb::handle tensor) {
  const nb::object values = plain_values(tensor);
  const auto size = nb::cast<std::size_t>(values.attr("numel")()) *
                    nb::cast<std::size_t>(values.attr("element_size")());
  // torch keeps the strides of a transposed tensor.
  const auto plainly = [&values] { return values.attr("cpu")().attr("contiguous")(); };
  if (size < kPinnedMin || size > kPinnedMax) return plainly();
  try {
    nb::dict options;
    options["dtype"] = values.attr("dtype");
    options["pin_memory"] = true;
    nb::object copy = loaded_package("torch").attr("empty")(values.attr("shape"), **options);
    copy.attr("copy_")(values);
    return copy;
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;  // Ctrl-C
    return plainly();                            // no memory can be pinned
  }
}

int cuda_device_of(nb::handle tensor) {
  if (!nb::cast<bool>(nb::getattr(tensor, "is_cuda", nb::bool_(false)))) return -1;
  return nb::cast<int>(tensor.attr("get_device")());
}

// --- Sending.

Neighbour DeviceSender::neighbour() const {
  return std::visit([this](const auto& receiver) { return peer_->neighbour(receiver); }, receiver_);
}

bool DeviceSender::is_ready(int device) {
  const auto known = ready_.find(device);
  if (known != ready_.end()) return known->second;
  Neighbour found = neighbour();
  const auto* const name = std::get_if<std::string>(&receiver_);
  if (found.session == 0 && name != nullptr) {
    // Where the tensor arrives must not depend on how soon it is sent.
    CallOptions options;
    options.deadline = way_.deadline;
    const auto ping =
        PendingCall::begin(peer_, *name, std::string(kPingFunction), Payload(), options);
    if (ping.ok()) {
      try {
        (void)wait_for(**ping, way_.deadline);
      } catch (nb::python_error&) {  // Ctrl-C
        (*ping)->cancel();
        throw;
      }
    }
    found = neighbour();
  }
  const bool is_ready =
      without_gil([&] { return devices_->can_lend(found, device, way_.deadline); });
  session_ = found.session;
  return ready_[device] = is_ready;
}

bool DeviceSender::write(ValueWriter& writer, nb::handle tensor, const LeafView& view) {
  const nb::object held = nb::borrow(tensor);  // the interpreter's lock is released here
  const int device = cuda_device_of(tensor);
  if (device < 0 || !is_ready(device)) return false;
  const std::optional<DeviceUuid> uuid = devices_->driver().uuid_of(device);
  if (!uuid) return false;
  const std::size_t size = size_of(view);
  if (size == 0) {
    writer.lent_tensor(view.dtype, view.shape, {}, TensorMaker::kTorch, *uuid, nullptr);
    return true;
  }
  if (way_.is_for_one_run && lend(writer, held, view, device)) return true;
  const nb::object copy = host_copy(held);
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(address_of(copy)),
                                         size);
  writer.lent_tensor(view.dtype, view.shape, bytes, TensorMaker::kTorch, *uuid, lend_array(copy));
  return true;
}

bool DeviceSender::lend(ValueWriter& writer, const nb::object& tensor, const LeafView& view,
                        int device) {
  nb::object mine;
  try {
    const nb::object values = plain_values(tensor);
    mine = values.attr("contiguous")();
    if (!way_.is_unchanged && address_of(mine) == address_of(tensor)) mine = mine.attr("clone")();
  } catch (nb::python_error& error) {  // the device has no memory for a copy
    if (error.matches(PyExc_RuntimeError)) return false;
    throw;
  }
  const std::uint64_t address = address_of(mine);
  const std::size_t size = size_of(view);
  const Result<DeviceTensors::Loan> loan =
      without_gil([&] { return devices_->lend(session_, device, address, size); });
  if (!loan.ok()) return false;
  writer.device_tensor(view.dtype, view.shape, TensorMaker::kTorch, loan->record);
  lent_.push_back(lend_array(mine));
  lent_.push_back(loan->counted);
  const std::pair stream(device, current_stream(loaded_package("torch"), device));
  if (std::ranges::find(streams_, stream) == streams_.end()) streams_.push_back(stream);
  return true;
}

void DeviceSender::finish(Payload& payload) {
  if (lent_.empty()) return;
  auto lent = std::make_shared<Lent>();
  lent->session = session_;
  lent->memory = std::make_shared<LentTensors>(std::move(lent_), devices_);
  const TimePoint deadline = std::min(way_.deadline, Clock::system().now() + kWorkMax);
  for (const auto& [device, stream] : streams_) {
    unwrap(without_gil([&, &on = device, &queue = stream] {
      return devices_->driver().wait(on, queue, deadline);
    }));
  }
  payload.lent = std::move(lent);
}

// --- Receiving.

nb::object DeviceReceiver::read(const ValueToken& token) {
  const DeviceRecord record = decode_device_record(token.device.first<kDeviceRecordBytes>());
  if (token.size_bytes == 0 || devices_ == nullptr) {
    raise(data_loss("a received array is in the memory of a device, where none can be"));
  }
  DeviceSource source =
      unwrap(without_gil([&] { return devices_->find(payload_, record, token.size_bytes); }));
  const int device = source.device;
  const nb::object torch = torch_with_cuda();
  if (!torch.is_valid()) {
    const bool is_torch = loaded_package("torch").is_valid();
    const nb::object array =
        new_array(is_torch ? numpy_bits_of(token.dtype) : token.dtype, token.shape);
    const std::span<std::byte> to(array_data(array), token.size_bytes);
    unwrap(
        without_gil([&] { return devices_->driver().copy_to_host(device, to, source.address); }));
    return is_torch ? torch_tensor_of(array, token.dtype) : array;
  }
  nb::list shape;
  for (const std::int64_t extent : token.shape) shape.append(extent);
  nb::dict options;
  options["dtype"] = torch_type(torch, token.dtype);
  options["device"] = device_name(device);
  Copy copy{std::move(source), torch.attr("empty")(shape, **options),
            current_stream(torch, device)};
  const std::uint64_t to = address_of(copy.tensor);
  nb::object tensor = copy.tensor;
  const std::uint64_t from = copy.source.address;
  const std::uint64_t stream = copy.stream;
  copies_.push_back(std::move(copy));  // before the copy begins
  unwrap(without_gil(
      [&] { return devices_->driver().copy(device, to, from, token.size_bytes, stream); }));
  return tensor;
}

nb::object DeviceReceiver::on_device(nb::object array, const ValueToken& token) const {
  const nb::object torch = devices_ == nullptr ? nb::object() : torch_with_cuda();
  if (!torch.is_valid()) return array;
  DeviceUuid uuid;
  std::memcpy(uuid.data(), token.device.data(), uuid.size());
  const std::optional<int> device = devices_->driver().find(uuid);
  return device ? nb::object(array.attr("to")(device_name(*device))) : array;
}

Status DeviceReceiver::wait() {
  Status status;
  std::vector<std::pair<int, std::uint64_t>> waited;
  const TimePoint deadline = Clock::system().now() + kWorkMax;
  for (const Copy& copy : copies_) {
    const std::pair queue(copy.source.device, copy.stream);
    if (std::ranges::find(waited, queue) != waited.end()) continue;
    waited.push_back(queue);
    const GilReleased released;
    const Status one = devices_->driver().wait(queue.first, queue.second, deadline);
    if (!one.ok()) status = one;
  }
  if (!status.ok()) {
    // The device may still copy: it keeps what it copies from and to, for ever.
    static_cast<void>(new std::vector<Copy>(std::move(copies_)));
    if (payload_.receipt) static_cast<void>(new std::shared_ptr<Receipt>(payload_.receipt));
  }
  copies_.clear();
  return status;
}

void DeviceReceiver::finish() {
  unwrap(wait());
  if (!payload_.receipt) return;
  if (devices_ != nullptr) unwrap(without_gil([this] { return devices_->confirm(payload_); }));
  payload_.receipt->give();
}

DeviceReceiver::~DeviceReceiver() {
  if (!copies_.empty()) static_cast<void>(wait().ok());
}

}  // namespace reverie::python
