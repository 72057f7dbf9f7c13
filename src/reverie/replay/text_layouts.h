// TextLayouts: items whose text reads as their table's signature says.
//
// Text is kept as bytes, whether a writer called it `str` or `bytes`, and Reverb's protocol has one
// type for both. So a signature takes either, and its own type is what readers get. The type of a
// column lies in the layout that a writer's items share; here each such layout gets a twin.
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
  // Gives the item's text columns the signature's types. Requires an item that fits the signature.
  void settle(const Signature& signature, Item& item);

 private:
  static constexpr std::size_t kKept = 16;
  struct Twin {
    Ref<const Layout> written;
    Ref<const Layout> read;
  };
  Ref<const Layout> twin_of(const Signature& signature, const Layout& written);

  Mutex mutex_;
  std::array<Twin, kKept> twins_ REVERIE_GUARDED_BY(mutex_);
  std::size_t next_ REVERIE_GUARDED_BY(mutex_) = 0;  // the one that is replaced next
};

}  // namespace reverie
