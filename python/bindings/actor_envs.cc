#include "python/bindings/actor_envs.h"

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/arrays.h"
#include "python/bindings/gil.h"
#include "python/bindings/held_object.h"

namespace reverie::python {
namespace {

Status at_exit() {
  return cancelled("the program ends");
}

AgentSpec read_spec(const nb::object& spec) {
  AgentSpec read;
  read.obs_width = nb::cast<std::size_t>(spec["obs_width"]);
  read.action_count = nb::cast<std::size_t>(spec["action_count"]);
  read.action_width = nb::cast<std::size_t>(spec["action_width"]);
  read.action_low = nb::cast<std::vector<float>>(spec["action_low"]);
  read.action_high = nb::cast<std::vector<float>>(spec["action_high"]);
  return read;
}

class PyActorEnvs final : public ActorEnvs {
 public:
  // With the interpreter's lock held.
  explicit PyActorEnvs(const nb::object& envs)
      : envs_(envs),
        spec_(read_spec(envs.attr("spec"))),
        id_(nb::cast<std::string>(envs.attr("spec")["id"])),
        count_(nb::cast<std::size_t>(envs.attr("count"))),
        actions_(array_data(envs.attr("actions"))) {
    const auto bytes = [&](const char* name) { return array_data(envs.attr(name)); };
    rows_ = {reinterpret_cast<const float*>(bytes("obs")),
             reinterpret_cast<const float*>(bytes("final_obs")),
             reinterpret_cast<const float*>(bytes("rewards")),
             reinterpret_cast<const std::uint8_t*>(bytes("terminated")),
             reinterpret_cast<const std::uint8_t*>(bytes("truncated"))};
  }
  ~PyActorEnvs() override {
    const GilAnywhere held;
    if (!held) return;
    const nb::error_scope pending;  // a training may be dropped while an exception is raised
    (void)call("close");
  }

  const AgentSpec& spec() const override { return spec_; }
  const std::string& id() const override { return id_; }
  std::size_t count() const override { return count_; }
  Status reset() override { return call("reset"); }
  Status step(std::span<const std::byte> actions) override {
    std::memcpy(actions_, actions.data(), actions.size());
    return call("step");
  }
  const EnvRows& rows() const override { return rows_; }
  Result<std::vector<std::byte>> state(bool has_last_step) override {
    const GilAnywhere held;
    if (!held) return at_exit();
    try {
      const nb::object state = envs_.get().attr("state")(has_last_step);
      if (nb::isinstance<nb::str>(state)) {
        return internal_error("{}", nb::cast<std::string>(state));
      }
      const auto bytes = nb::cast<nb::bytes>(state);
      const auto* const begin = reinterpret_cast<const std::byte*>(bytes.c_str());
      return std::vector<std::byte>(begin, begin + bytes.size());
    } catch (nb::python_error& error) {
      return failed(error);
    }
  }
  Status resume(std::span<const std::byte> state) override {
    const GilAnywhere held;
    if (!held) return at_exit();
    const nb::bytes bytes(reinterpret_cast<const char*>(state.data()), state.size());
    return call("resume", bytes);
  }

 private:
  // None, or what went wrong as text.
  template <typename... Arguments>
  Status call(const char* method, const Arguments&... arguments) {
    const GilAnywhere held;
    if (!held) return at_exit();
    try {
      const nb::object text = envs_.get().attr(method)(arguments...);
      if (text.is_none()) return {};
      return internal_error("{}", nb::cast<std::string>(text));
    } catch (nb::python_error& error) {
      return failed(error);
    }
  }
  // Ctrl-C may come at the beginning of a method, before it handles errors itself: it is kept as
  // one that came later.
  Status failed(nb::python_error& error) {
    if (error.matches(PyExc_Exception)) return internal_error("{}", error.what());
    try {
      const nb::object text = envs_.get().attr("_owner").attr("keep")(error.value());
      return internal_error("{}", nb::cast<std::string>(text));
    } catch (nb::python_error& another) {
      return internal_error("{}", another.what());
    }
  }

  HeldObject envs_;  // keeps the arrays
  const AgentSpec spec_;
  const std::string id_;
  const std::size_t count_;
  std::byte* const actions_;
  EnvRows rows_;
};

}  // namespace

EnvSource python_env_source(nb::object source) {
  EnvSource made;
  made.name = nb::cast<std::string>(source.attr("name"));
  made.spec = read_spec(source.attr("spec"));
  auto held = std::make_shared<HeldObject>(std::move(source));
  made.make = [held](std::size_t count, std::uint64_t seed) -> Result<std::unique_ptr<ActorEnvs>> {
    const GilAnywhere gil;
    if (!gil) return at_exit();
    try {
      const nb::object envs = held->get().attr("make")(count, seed);
      if (nb::isinstance<nb::str>(envs)) {
        return internal_error("{}", nb::cast<std::string>(envs));
      }
      return std::unique_ptr<ActorEnvs>(std::make_unique<PyActorEnvs>(envs));
    } catch (nb::python_error& error) {
      return internal_error("{}", error.what());
    }
  };
  return made;
}

}  // namespace reverie::python
