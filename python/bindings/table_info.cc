#include "python/bindings/table_info.h"

#include <string>
#include <tuple>
#include <vector>

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "python/bindings/checkpoints.h"
#include "python/bindings/convert.h"

namespace reverie::python {
namespace {

// (path, dtype name, shape)
using ColumnTuple = std::tuple<std::string, std::string, Shape>;
using SignatureTuple = std::tuple<std::vector<ColumnTuple>, std::string>;
using ComponentTuple = std::tuple<std::string, Options>;
using LimiterTuple = std::tuple<double, std::int64_t, double, double>;

ComponentSpec component(nb::handle given) {
  auto [name, options] = nb::cast<ComponentTuple>(given);
  return {std::move(name), std::move(options)};
}

Signature signature(nb::handle given) {
  auto [columns, structure] = nb::cast<SignatureTuple>(given);
  Signature made;
  made.structure = std::move(structure);
  for (auto& [path, dtype, shape] : columns) {
    made.columns.push_back({path, dtype_from_name(dtype).value(), shape});
  }
  return made;
}

nb::object to_tuple(const Signature& given) {
  std::vector<ColumnTuple> columns;
  for (const TensorSpec& spec : given.columns) {
    columns.emplace_back(spec.name, std::string(dtype_name(spec.dtype)), spec.shape);
  }
  return nb::cast(SignatureTuple(std::move(columns), given.structure));
}

nb::object to_tuple(const ComponentSpec& given) {
  return nb::cast(ComponentTuple(given.name, given.options));
}

nb::dict to_dict(const TableInfo& info) {
  const TableOptions& options = info.options;
  const RateLimiterSpec& limiter = options.rate_limiter;
  nb::list extensions;
  for (const ComponentSpec& extension : options.extensions) extensions.append(to_tuple(extension));
  nb::dict table;
  table["name"] = options.name;
  table["sampler"] = to_tuple(options.sampler);
  table["remover"] = to_tuple(options.remover);
  table["max_size"] = options.max_size;
  table["max_bytes"] = nb::cast(options.max_bytes);
  table["max_times_sampled"] = options.max_times_sampled;
  table["rate_limiter"] = nb::cast(LimiterTuple(
      limiter.samples_per_insert, limiter.min_size_to_sample, limiter.min_diff, limiter.max_diff));
  table["extensions"] = extensions;
  table["signature"] = options.signature ? to_tuple(*options.signature) : nb::object(nb::none());
  const std::string original = options.signature ? options.signature->original : std::string();
  table["signature_message"] = nb::bytes(original.data(), original.size());
  table["current_size"] = info.current_size;
  table["size_bytes"] = info.size_bytes;
  table["num_episodes"] = info.num_episodes;
  table["num_deleted_episodes"] = info.num_deleted_episodes;
  table["num_unique_samples"] = info.num_unique_samples;
  table["inserts"] = info.inserts;
  table["samples"] = info.samples;
  table["deletes"] = info.deletes;
  table["max_priority"] = info.max_priority;
  table["pending_inserts"] = info.pending_inserts;
  table["pending_samples"] = info.pending_samples;
  table["insert_wait_s"] = info.insert_wait_s;
  table["sample_wait_s"] = info.sample_wait_s;
  table["missing_updates"] = info.missing_updates;
  table["corrupt_items"] = info.corrupt_items;
  return table;
}

}  // namespace

TableOptions table_options(nb::dict table) {
  TableOptions options;
  options.name = nb::cast<std::string>(table["name"]);
  options.sampler = component(table["sampler"]);
  options.remover = component(table["remover"]);
  options.max_size = nb::cast<std::int64_t>(table["max_size"]);
  options.max_bytes = nb::cast<std::optional<std::int64_t>>(table["max_bytes"]);
  options.max_times_sampled = nb::cast<std::int64_t>(table["max_times_sampled"]);
  const auto [samples_per_insert, min_size, min_diff, max_diff] =
      nb::cast<LimiterTuple>(table["rate_limiter"]);
  options.rate_limiter = {samples_per_insert, min_size, min_diff, max_diff};
  for (nb::handle extension : nb::cast<nb::list>(table["extensions"])) {
    options.extensions.push_back(component(extension));
  }
  const nb::object given = table["signature"];
  if (!given.is_none()) options.signature = signature(given);
  if (options.signature && table.contains("signature_message")) {
    const auto original = nb::cast<nb::bytes>(table["signature_message"]);
    options.signature->original.assign(original.c_str(), original.size());
  }
  if (table.contains("checks_items")) options.checks_items = nb::cast<bool>(table["checks_items"]);
  if (table.contains("memory_bytes")) {
    options.memory_bytes = nb::cast<std::optional<std::int64_t>>(table["memory_bytes"]);
  }
  if (table.contains("durability") && !table["durability"].is_none()) {
    options.durability = durability_of(nb::cast<std::string>(table["durability"]));
  }
  if (table.contains("undoes_unsent")) {
    options.undoes_unsent = nb::cast<bool>(table["undoes_unsent"]);
  }
  return options;
}

nb::list table_infos(ReplayService& service, const WaitOptions& wait) {
  const std::vector<TableInfo> infos =
      unwrap(without_gil([&] { return info_and_wait(service, wait); }));
  nb::list tables;
  for (const TableInfo& info : infos) tables.append(to_dict(info));
  return tables;
}

}  // namespace reverie::python
