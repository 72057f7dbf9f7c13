#include "python/bindings/lent_arrays.h"

#include <utility>
#include <vector>

#include "reverie/base/mutex.h"

namespace reverie::python {
namespace {

// --- Arrays that a message refers to. The I/O thread releases messages without the interpreter's
// lock, which is needed to release an array: so arrays are kept here until a thread holds the lock.
struct Returned {
  Mutex mutex;
  std::vector<PyObject*> objects REVERIE_GUARDED_BY(mutex);
};

Returned& returned() {
  static auto* const instance = new Returned;
  return *instance;
}

}  // namespace

std::shared_ptr<const void> lend_array(nb::object array) {
  return {array.release().ptr(), [](const void* kept) {
            MutexLock lock(returned().mutex);
            returned().objects.push_back(static_cast<PyObject*>(const_cast<void*>(kept)));
          }};
}

void drop_lent_arrays() {
  std::vector<PyObject*> gone;
  {
    MutexLock lock(returned().mutex);
    gone.swap(returned().objects);
  }
  for (PyObject* const object : gone) Py_DECREF(object);
}

}  // namespace reverie::python
