// What devices and their memory are called in every process of a machine.
#pragma once

#include <array>
#include <cstddef>

namespace reverie {

// The UUID of a GPU or of a part of one, whose index differs between processes.
using DeviceUuid = std::array<std::byte, 16>;
// What other processes open an allocation in a device's memory by.
using DeviceHandle = std::array<std::byte, 64>;

}  // namespace reverie
