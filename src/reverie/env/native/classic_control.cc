// Tested in tests/conformance/env_suite.h and tests/python/native_gymnasium_test.py.
#include "reverie/env/native/classic_control.h"

#include "reverie/env/native/acrobot.h"
#include "reverie/env/native/cart_pole.h"
#include "reverie/env/native/mountain_car.h"
#include "reverie/env/native/pendulum.h"

namespace reverie {

Status add_classic_control(NativeEnvAdder& registry) {
  REVERIE_RETURN_IF_ERROR(registry.add("CartPole-v1", native_factory<CartPole>()));
  REVERIE_RETURN_IF_ERROR(registry.add("Acrobot-v1", native_factory<Acrobot>()));
  REVERIE_RETURN_IF_ERROR(registry.add("MountainCar-v0", native_factory<MountainCar>()));
  REVERIE_RETURN_IF_ERROR(
      registry.add("MountainCarContinuous-v0", native_factory<MountainCarContinuous>()));
  return registry.add("Pendulum-v1", native_factory<Pendulum>());
}

}  // namespace reverie
