// Tested in src/reverie/replay/table_rules_test.cc.
#include "reverie/record/text_layouts.h"

#include <utility>
#include <vector>

namespace reverie {
namespace {

bool has_declared_types(const Signature& signature, const Layout& layout) {
  const auto columns = layout.columns();
  for (std::size_t c = 0; c < columns.size(); ++c) {
    if (columns[c].spec.dtype != signature.columns[c].dtype) return false;
  }
  return true;
}

}  // namespace

void TextLayouts::settle(const Signature& signature, Item& item) {
  const Layout& written = item.trajectory.layout();
  if (has_declared_types(signature, written)) return;
  item.trajectory = Trajectory(converted(signature, written), item.trajectory.pieces());
}

Ref<const Layout> TextLayouts::converted(const Signature& signature, const Layout& written) {
  MutexLock lock(mutex_);
  for (const Conversion& conversion : conversions_) {
    if (conversion.written.get() == &written) return conversion.read;
  }
  std::vector<LayoutColumn> columns(written.columns().begin(), written.columns().end());
  for (std::size_t c = 0; c < columns.size(); ++c) {
    columns[c].spec.dtype = signature.columns[c].dtype;
  }
  Conversion& made = conversions_[next_];
  next_ = (next_ + 1) % kKept;
  made.written = Ref<const Layout>::share(&written);
  made.read = make_ref<Layout>(std::move(columns), written.structure(), written.tag());
  return made.read;
}

}  // namespace reverie
