// Binds networks and their optimiser. reverie/nn.py is the only caller and checks shapes.
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/bind.h"
#include "python/bindings/convert.h"
#include "python/bindings/network.h"
#include "reverie/nn/adam.h"
#include "reverie/nn/initializer.h"
#include "reverie/nn/mlp_file.h"

namespace reverie::python {
namespace {

using In = nb::ndarray<const float, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<float, nb::c_contig, nb::device::cpu>;
using Flat = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using Metadata = std::map<std::string, std::string>;

std::span<const float> span(const In& array) {
  return {array.data(), array.size()};
}
std::span<float> span(const Out& array) {
  return {array.data(), array.size()};
}

// An array that owns `parameters`.
Flat owning_array(nn::Parameters parameters) {
  auto* kept = new nn::Parameters(std::move(parameters));
  nb::capsule owner(kept,
                    [](void* object) noexcept { delete static_cast<nn::Parameters*>(object); });
  return {kept->data(), {kept->float_count()}, owner};
}

Network make_network(std::vector<std::size_t> widths, const std::string& hidden,
                     const std::string& output) {
  nn::MlpSpec spec;
  spec.widths = std::move(widths);
  spec.hidden = unwrap(nn::activation_named(hidden));
  spec.output = unwrap(nn::activation_named(output));
  nn::Mlp mlp = unwrap(nn::Mlp::make(std::move(spec)));
  nn::Parameters parameters = mlp.make_parameters();
  return {std::move(mlp), std::move(parameters)};
}

std::optional<nn::Activation> activation(const std::optional<std::string>& name) {
  if (!name) return std::nullopt;
  return unwrap(nn::activation_named(*name));
}

std::pair<Network, Metadata> load_network(const std::string& path,
                                          const std::optional<std::string>& hidden,
                                          const std::optional<std::string>& output) {
  const auto hidden_activation = activation(hidden);
  const auto output_activation = activation(output);
  nn::SavedMlp saved =
      unwrap(without_gil([&] { return nn::load_mlp(path, hidden_activation, output_activation); }));
  return {Network(std::move(saved.mlp), std::move(saved.parameters)), std::move(saved.metadata)};
}

// An Adam with memory for the gradient from Python.
struct Optimizer {
  nn::Adam adam;
  nn::Parameters gradient;
  OneCallAtATime calls{"Adam"};

  // Returns the norm of the gradient, before clipping.
  Result<double> step(Network& network, std::span<const float> values,
                      std::optional<double> norm_max) {
    std::copy(values.begin(), values.end(), gradient.data());
    REVERIE_ASSIGN_OR_RETURN(const double norm, nn::gradient_norm(network.mlp(), gradient));
    const double scale = norm_max ? nn::clip_scale(norm, *norm_max) : 1.0;
    adam.step(gradient, static_cast<float>(scale), network.parameters());
    return norm;
  }
};

void bind_network(nb::module_& m) {
  nb::class_<Network>(m, "Mlp", "See ``reverie.nn.Mlp``.")
      .def_prop_ro("widths", [](const Network& self) { return self.mlp().spec().widths; })
      .def_prop_ro("hidden",
                   [](const Network& self) {
                     return std::string(nn::activation_name(self.mlp().spec().hidden));
                   })
      .def_prop_ro("output",
                   [](const Network& self) {
                     return std::string(nn::activation_name(self.mlp().spec().output));
                   })
      .def_prop_ro("float_count", [](const Network& self) { return self.mlp().float_count(); })
      .def_prop_ro("kept_rows", &Network::kept_rows)
      // (index of the weight, index of the bias, inputs, outputs, stride) of each layer.
      .def_prop_ro(
          "layers",
          [](const Network& self) {
            std::vector<std::tuple<std::size_t, std::size_t, std::size_t, std::size_t, std::size_t>>
                layers;
            for (const nn::Mlp::Layer& layer : self.mlp().layers()) {
              layers.emplace_back(layer.weight, layer.bias, layer.inputs, layer.outputs,
                                  layer.stride);
            }
            return layers;
          })
      .def_prop_ro("parameters",
                   [](Network& self) {
                     return Flat(self.parameters().data(), {self.parameters().float_count()},
                                 nb::find(self));
                   })
      .def(
          "initialize_uniform",
          [](Network& self, std::optional<std::uint64_t> seed) {
            Random random(seed);
            nn::initialize_uniform(self.mlp(), random, self.parameters());
            return random.seed();
          },
          nb::arg("seed").none())
      .def(
          "initialize_orthogonal",
          [](Network& self, std::vector<double> gains, std::optional<std::uint64_t> seed) {
            Random random(seed);
            const InUse in_use(self.calls());
            unwrap(without_gil([&] {
              return nn::initialize_orthogonal(self.mlp(), gains, random, self.parameters());
            }));
            return random.seed();
          },
          nb::arg("gains"), nb::arg("seed").none())
      .def(
          "forward",
          [](Network& self, In inputs, bool keeps, Out outputs) {
            const InUse in_use(self.calls());
            without_gil([&] { self.forward(span(inputs), inputs.shape(0), keeps, span(outputs)); });
          })
      .def("backward",
           [](Network& self, In output_gradient) {
             const InUse in_use(self.calls());
             return owning_array(
                 unwrap(without_gil([&] { return self.backward(span(output_gradient)); })));
           })
      .def("input_gradient",
           [](Network& self, In output_gradient, Out gradient) {
             const InUse in_use(self.calls());
             unwrap(without_gil(
                 [&] { return self.input_gradient(span(output_gradient), span(gradient)); }));
           })
      .def("copy", &Network::copy)
      .def("approach",
           [](Network& self, Network& source, double rate) {
             InUse::check(self.calls());
             InUse::check(source.calls());
             nn::polyak_average(source.parameters(), static_cast<float>(rate), self.parameters());
           })
      .def("save", [](Network& self, const std::string& path, Metadata metadata) {
        const InUse in_use(self.calls());
        unwrap(without_gil([&] {
          return nn::save_mlp(path, self.mlp(), self.parameters(), std::move(metadata));
        }));
      });
  m.def("make_mlp", &make_network);
  m.def("load_mlp", &load_network, nb::arg("path"), nb::arg("hidden").none(),
        nb::arg("output").none());
}

void bind_adam(nb::module_& m) {
  nb::class_<Optimizer>(m, "Adam", "See ``reverie.nn.Adam``.")
      .def("__init__",
           [](Optimizer* self, const Network& network, double learning_rate, double mean_decay,
              double square_decay, double epsilon) {
             nn::AdamOptions options{learning_rate, mean_decay, square_decay, epsilon};
             new (self) Optimizer{unwrap(nn::Adam::make(network.mlp(), options)),
                                  network.mlp().make_parameters()};
           })
      .def(
          "step",
          [](Optimizer& self, Network& network, In gradient, std::optional<double> norm_max) {
            const InUse own(self.calls);
            const InUse its(network.calls());
            return unwrap(
                without_gil([&] { return self.step(network, span(gradient), norm_max); }));
          },
          nb::arg("network"), nb::arg("gradient"), nb::arg("norm_max").none())
      .def_prop_rw(
          "learning_rate", [](const Optimizer& self) { return self.adam.options().learning_rate; },
          [](Optimizer& self, double value) { unwrap(self.adam.set_learning_rate(value)); })
      .def_prop_ro("step_count", [](const Optimizer& self) { return self.adam.step_count(); })
      .def("state",
           [](const Optimizer& self) {
             InUse::check(self.calls);
             return std::make_pair(owning_array(self.adam.mean().copy()),
                                   owning_array(self.adam.square().copy()));
           })
      .def("restore", [](Optimizer& self, In mean, In square, std::uint64_t step_count) {
        InUse::check(self.calls);
        nn::Parameters first(mean.size());
        nn::Parameters second(square.size());
        std::copy_n(mean.data(), mean.size(), first.data());
        std::copy_n(square.data(), square.size(), second.data());
        self.adam.restore(first, second, step_count);
      });
}

}  // namespace

void bind_nn(nb::module_& m) {
  bind_network(m);
  bind_adam(m);
}

}  // namespace reverie::python
