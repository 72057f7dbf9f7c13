// What each bind_<room>.cc adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace reverie::python {

void bind_base(nanobind::module_& m);
void bind_tensor(nanobind::module_& m);
void bind_client(nanobind::module_& m);
void bind_columns(nanobind::module_& m);
void bind_writer(nanobind::module_& m);
void bind_structured_writer(nanobind::module_& m);
void bind_replay(nanobind::module_& m);
void bind_env(nanobind::module_& m);
void bind_server(nanobind::module_& m);
void bind_replay_buffer(nanobind::module_& m);
void bind_env_pool(nanobind::module_& m);
void bind_dataset(nanobind::module_& m);
void bind_sample_items(nanobind::module_& m);
void bind_atari(nanobind::module_& m);
void bind_batcher(nanobind::module_& m);
void bind_rl(nanobind::module_& m);
void bind_nn(nanobind::module_& m);
void bind_train(nanobind::module_& m);
void bind_rpc(nanobind::module_& m);
void bind_group(nanobind::module_& m);
void bind_weights(nanobind::module_& m);
// Call it after the others: it takes a type from one of their methods.
void bind_signatures(nanobind::module_& m);

}  // namespace reverie::python
