// Arithmetic with the same bits as Python's, where plain C++ would give others.
#pragma once

namespace reverie {

// x ** 2 of a Python float or a NumPy scalar: the C library's power, which is not always x * x (one
// in a thousand differs by the last bit). In a separate source, since the compiler would turn it
// into x * x.
double python_square(double x);
float python_square(float x);

// x % y of a NumPy float64: takes the sign of y. Requires y > 0.
double python_modulo(double x, double y);

}  // namespace reverie
