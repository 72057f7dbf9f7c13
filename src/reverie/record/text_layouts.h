// TextLayouts: gives text columns of items the types of their table's signature.
//
// Text is stored as bytes, whether a writer called it `str` or `bytes`, and Reverb's protocol has
// one type for both. So a signature accepts either, and readers get the signature's type. The type
// of a column is in the layout that a writer's items share; here each such layout gets a twin.
#pragma once

#include <array>
#include <cstddef>

#include "reverie/base/mutex.h"
#include "reverie/base/ref.h"
#include "reverie/record/item.h"
#include "reverie/tensor/tensor.h"

namespace reverie {

// Thread-safe.
class TextLayouts {
 public:
  // Gives the item's text columns the signature's types. Requires an item that matches it.
  void settle(const Signature& signature, Item& item);

 private:
  static constexpr std::size_t kKept = 16;
  struct Conversion {
    Ref<const Layout> written;
    Ref<const Layout> read;
  };
  Ref<const Layout> converted(const Signature& signature, const Layout& written);

  Mutex mutex_;
  std::array<Conversion, kKept> conversions_ REVERIE_GUARDED_BY(mutex_);
  std::size_t next_ REVERIE_GUARDED_BY(mutex_) = 0;  // replaced next
};

}  // namespace reverie
