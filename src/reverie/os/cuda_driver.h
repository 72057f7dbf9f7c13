// CUDA's driver, found when the program has loaded it.
#pragma once

#include "reverie/os/device_driver.h"

namespace reverie {

// One for the process. Until the program uses CUDA, it knows no device.
DeviceDriver& cuda_driver();

}  // namespace reverie
