// The shared library of the Python package that adds what needs Box2D.
//
// Tested in tests/python/native_lunar_lander_test.py.
#include "reverie/env/native/box2d.h"
#include "reverie/env/native_plugin.h"

REVERIE_PLUGIN(host) {
  REVERIE_ASSIGN_OR_RETURN(reverie::NativeEnvAdder * registry, host.get<reverie::NativeEnvAdder>());
  return reverie::add_box2d_environments(*registry);
}
