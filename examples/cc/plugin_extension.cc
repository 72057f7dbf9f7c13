// A user's table extension, in a shared library that a C++ or a Python program loads.
//
//     reverie.load_plugin("build/release/examples/plugin_extension.so")
//     extension = reverie.extensions.Custom("SampleDecay", factor=0.5)
//     ...
//     extension.summary()    # {"decays": 96.0, "priority_taken": 31.5}
//
// SampleDecay: each time an item is drawn, its priority is multiplied by `factor`, until the
// learner sets it again. So a learner that reports slowly does not get the same few items in every
// batch.
//
//     priority   8 --drawn--> 4 --drawn--> 2 --updated to 5--> 5 --drawn--> 2.5
//
// It runs under the table's lock, so no reader sees an item that was drawn and has not decayed yet.
// All draws of a batch are made before the first of them decays.
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "reverie/replay/plugin.h"

namespace {

using namespace reverie;

class SampleDecay final : public TableExtension {
 public:
  static Result<std::unique_ptr<TableExtension>> make(const Options& options) {
    OptionReader reader(options);
    const double factor = reader.number("factor", 0.5);
    REVERIE_RETURN_IF_ERROR(reader.finish());
    if (!(factor > 0 && factor <= 1)) {
      return invalid_argument("factor is {}; it must be in (0, 1]", factor);
    }
    return std::unique_ptr<TableExtension>(new SampleDecay(factor));
  }

  std::string_view name() const override { return "SampleDecay"; }

  void on_sample(TableAccess& table, Slot slot) override {
    const double priority = table.item(slot).priority;
    const double decayed = priority * factor_;
    if (!table.set_priority(slot, decayed).ok()) return;  // the old priority stays
    ++decays_;
    priority_taken_ += priority - decayed;
  }
  void on_reset() override { *this = SampleDecay(factor_); }

  std::map<std::string, double> summary(TimePoint) const override {
    return {{"decays", decays_}, {"priority_taken", priority_taken_}};
  }

 private:
  explicit SampleDecay(double factor) : factor_(factor) {}

  double factor_;
  double decays_ = 0;
  double priority_taken_ = 0;
};

}  // namespace

REVERIE_PLUGIN(host) {
  return add_extension(host, "SampleDecay", SampleDecay::make);
}
