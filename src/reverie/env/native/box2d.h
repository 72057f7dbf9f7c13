// The environments on the physics library Box2D.
//
// They form a separate library, reverie_box2d, since only they need Box2D. The Python package
// contains it as a plugin beside the extension.
#pragma once

#include "reverie/env/native_registry.h"

namespace reverie {

// LunarLander-v3 and LunarLanderContinuous-v3, which is LunarLander-v3 with continuous = true.
// Options of both:
//
//     gravity           -10.0, in (-12, 0)
//     enable_wind       false: whether wind and turbulence push the lander in the air
//     wind_power        15.0, in [0, 20]
//     turbulence_power  1.5, in [0, 2]
//
// Observation: position and velocity against the landing pad, angle, angular velocity, and for each
// leg whether it is down. Discrete actions: nothing, left engine, main engine, right engine;
// continuous ones: main engine in [-1, 1], off below 0, and side engines, off in [-0.5, 0.5].
//
// Source: Gymnasium's LunarLander-v3 (O. Klimov), its geometry, forces and rewards. Differs: the
// physics is Box2D 2.4.1, Gymnasium's 2.3.10, so flights agree closely but not to the bit; see
// docs/concepts/env.md.
Status add_box2d_environments(NativeEnvAdder& registry);

}  // namespace reverie
