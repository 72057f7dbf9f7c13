// Arithmetic that gives the bits which Python gives where C++ would give others.
#pragma once

namespace reverie {

// x ** 2 of a Python float or a NumPy scalar: the C library's power, which is not always x * x (one
// in a thousand differs by the last bit). Kept out of the compiler's sight, which would make it x *
// x.
double python_square(double x);
float python_square(float x);

// x % y of a NumPy float64: takes the sign of y. Requires y > 0.
double python_modulo(double x, double y);

}  // namespace reverie
