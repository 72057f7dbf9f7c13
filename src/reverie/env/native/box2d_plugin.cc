// The shared library of the Python package that adds what needs Box2D.
//
// Tested in tests/python/native_lunar_lander_test.py.
#include "reverie/env/native/box2d.h"
#include "reverie/env/native_plugin.h"

REVERIE_ENV_PLUGIN(registry) {
  return reverie::add_box2d_environments(registry);
}
