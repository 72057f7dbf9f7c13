// Tensors of torch on a GPU, on their way between peers: docs/concepts/rpc.md.
//
// A tensor goes to a peer that reads this process's device memory as a record of where it is there
// (calls/device_tensors.h), and to any other peer as bytes. Nothing here imports torch, or has it
// use a device: a program that does neither sends and receives on the CPU.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <nanobind/nanobind.h>

#include "python/bindings/leaf_view.h"
#include "reverie/base/clock.h"
#include "reverie/calls/device_tensors.h"
#include "reverie/rpc/peer.h"
#include "reverie/tensor/value_reader.h"
#include "reverie/tensor/value_writer.h"

namespace reverie::python {

namespace nb = nanobind;

// A row-major copy of a GPU's tensor in the host's memory, which is pinned if that is faster.
nb::object host_copy(nb::handle tensor);

// The tensors of one message to one peer. Requires the interpreter's lock.
class DeviceSender {
 public:
  struct Way {
    // No thread changes the tensors before the receiver has copied them: nothing is copied here.
    bool is_unchanged = false;
    // The message goes to the run that is connected now, and to no other.
    bool is_for_one_run = true;
    TimePoint deadline = TimePoint::max();
  };
  // The peer by its name, or the caller of a request.
  using Receiver = std::variant<std::string, InboundId>;

  DeviceSender(std::shared_ptr<Peer> peer, std::shared_ptr<DeviceTensors> devices,
               Receiver receiver, const Way& way)
      : peer_(std::move(peer)),
        devices_(std::move(devices)),
        receiver_(std::move(receiver)),
        way_(way) {}

  // Changes the way for the tensors that are written from now on.
  void set_unchanged(bool is_unchanged) { way_.is_unchanged = is_unchanged; }
  // Whether the receiver has tensors of this device on the same device. The first time it is asked,
  // after its connection, which is waited for.
  bool is_ready(int device);
  // Writes a tensor of a GPU. False: the receiver gets it on the CPU.
  bool write(ValueWriter& writer, nb::handle tensor, const LeafView& view);
  // Waits until the tensors that were written are complete, and has `payload` keep them.
  void finish(Payload& payload);

 private:
  Neighbour neighbour() const;
  // False if the memory has no handle, or too much is lent.
  bool lend(ValueWriter& writer, const nb::object& tensor, const LeafView& view, int device);

  const std::shared_ptr<Peer> peer_;
  const std::shared_ptr<DeviceTensors> devices_;
  const Receiver receiver_;
  Way way_;
  std::uint64_t session_ = 0;
  std::map<int, bool> ready_;
  std::vector<std::shared_ptr<const void>> lent_;
  std::vector<std::pair<int, std::uint64_t>> streams_;  // each device's, that make the tensors
};

// The index of a tensor's CUDA device; -1 for other devices.
int cuda_device_of(nb::handle tensor);

// The tensors of one received message. Requires the interpreter's lock.
class DeviceReceiver {
 public:
  // `devices` is null where messages with records are refused. The payload outlives this.
  DeviceReceiver(DeviceTensors* devices, const Payload& payload)
      : devices_(devices), payload_(payload) {}
  // Waits for the copies of a message that was refused after them.
  ~DeviceReceiver();
  DeviceReceiver(const DeviceReceiver&) = delete;
  DeviceReceiver& operator=(const DeviceReceiver&) = delete;

  // The tensor of a record: on the device if torch uses that, else on the CPU. It is complete
  // after finish().
  nb::object read(const ValueToken& token);
  // The tensor of a device whose bytes came as `array`.
  nb::object on_device(nb::object array, const ValueToken& token) const;
  // Waits for the copies, and gives the receipt.
  void finish();

 private:
  struct Copy {
    DeviceSource source;
    nb::object tensor;
    std::uint64_t stream = 0;
  };
  Status wait();

  DeviceTensors* const devices_;
  const Payload& payload_;
  std::vector<Copy> copies_;
};

}  // namespace reverie::python
