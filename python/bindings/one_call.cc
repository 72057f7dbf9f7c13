#include "python/bindings/one_call.h"

#include "python/bindings/convert.h"
#include "reverie/base/format.h"

namespace reverie::python {

void InUse::refuse(const OneCallAtATime& calls) {
  raise(failed_precondition(
      "this {} is in use by another call, in another thread or around this one; give each "
      "thread a {} of its own",
      calls.what, calls.what));
}

}  // namespace reverie::python
