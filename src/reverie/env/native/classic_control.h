// The environments of classic control.
#pragma once

#include "reverie/env/native_registry.h"

namespace reverie {

// CartPole-v1, Acrobot-v1, MountainCar-v0, MountainCarContinuous-v0 and Pendulum-v1.
Status add_classic_control(NativeEnvAdder& registry);

}  // namespace reverie
