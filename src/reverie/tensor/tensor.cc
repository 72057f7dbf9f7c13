#include "reverie/tensor/tensor.h"

namespace reverie {

std::string spec_text(const TensorSpec& spec) {
  std::string text = spec.name.empty() ? "" : spec.name + ": ";
  text += dtype_name(spec.dtype);
  text += ' ';
  text += shape_text(spec.shape);
  return text;
}

}  // namespace reverie
