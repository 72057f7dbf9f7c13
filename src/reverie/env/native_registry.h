// NativeRegistry: native environments by name.
//
//     NativeRegistry registry;
//     add_classic_control(registry);
//     registry.make("CartPole-v1", {}, /*count=*/64);
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "reverie/base/mutex.h"
#include "reverie/env/native_env.h"

namespace reverie {

// What a plugin sees: virtual, so that a shared library calls code of the process that loaded it.
class NativeEnvAdder {
 public:
  static constexpr std::string_view kPluginPart = "environments";  // base/plugin.h

  // ALREADY_EXISTS if the name is taken.
  virtual Status add(std::string id, NativeFactory factory) = 0;

 protected:
  ~NativeEnvAdder() = default;
};

// Thread-safe. Empty when made.
class NativeRegistry final : public NativeEnvAdder {
 public:
  Status add(std::string id, NativeFactory factory) override;

  // In alphabetical order.
  std::vector<std::string> ids() const;

  // NOT_FOUND, with the most similar names; else the factory's error, preceded by the name.
  // Environment i draws from Random(i) until it is seeded.
  Result<std::unique_ptr<NativeBatch>> make(std::string_view id, const Options& options,
                                            std::size_t count) const;

 private:
  mutable Mutex mutex_;
  std::map<std::string, NativeFactory, std::less<>> factories_ REVERIE_GUARDED_BY(mutex_);
};

}  // namespace reverie
