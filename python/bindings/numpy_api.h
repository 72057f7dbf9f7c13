// NumPy's C interface: included only through this header, so that all files share its table.
#pragma once

#include <Python.h>

#define NPY_NO_DEPRECATED_API NPY_1_23_API_VERSION
#define PY_ARRAY_UNIQUE_SYMBOL reverie_numpy_api
#ifndef REVERIE_IMPORTS_NUMPY
#define NO_IMPORT_ARRAY
#endif
#include <numpy/arrayobject.h>
#include <numpy/arrayscalars.h>
