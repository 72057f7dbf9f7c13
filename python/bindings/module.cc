// The extension module. Each room that has bindings has its own file.
#include <exception>
#include <new>
#include <system_error>

#include <nanobind/nanobind.h>

#include "python/bindings/arrays.h"
#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/gil.h"
#include "reverie/base/start_thread.h"

namespace nb = nanobind;

NB_MODULE(_reverie, m) {
  m.doc() = "Native half of the reverie package; import reverie instead.";
  // Objects that a program still holds when the interpreter ends are not leaks.
  nb::set_leak_warnings(false);
  nb::register_exception_translator([](const std::exception_ptr& thrown, void*) {
    try {
      std::rethrow_exception(thrown);
    } catch (const std::bad_alloc&) {
      PyErr_SetString(PyExc_MemoryError,
                      "there is not enough memory for this call; ask for less at once");
    } catch (const std::system_error& error) {
      if (error.code() != std::errc::resource_unavailable_try_again) throw;
      const nb::object raised =
          reverie::python::make_error(reverie::no_thread("this call", error.what()));
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(raised.ptr())), raised.ptr());
    }
  });
  reverie::python::import_numpy();
  reverie::python::guard_exit();
  m.def(
      "version", [] { return REVERIE_VERSION; },
      "The version of the native library, as \"1.2.3\".");
  reverie::python::bind_base(m);
  reverie::python::bind_tensor(m);
  reverie::python::bind_columns(m);
  reverie::python::bind_client(m);
  reverie::python::bind_writer(m);
  reverie::python::bind_structured_writer(m);
  reverie::python::bind_replay(m);
  reverie::python::bind_env(m);
  reverie::python::bind_server(m);
  reverie::python::bind_replay_buffer(m);
  reverie::python::bind_env_pool(m);
  reverie::python::bind_dataset(m);
  reverie::python::bind_sample_items(m);
  reverie::python::bind_atari(m);
  reverie::python::bind_batcher(m);
  reverie::python::bind_rl(m);
  reverie::python::bind_nn(m);
  reverie::python::bind_train(m);
  reverie::python::bind_rpc(m);
  reverie::python::bind_group(m);
  reverie::python::bind_weights(m);
  reverie::python::bind_signatures(m);
}
