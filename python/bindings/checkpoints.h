// The parts of a store on a disk: checkpoints, and chunks beyond memory.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <nanobind/nanobind.h>

#include "python/bindings/client.h"
#include "reverie/checkpoint/checkpoint_worker.h"
#include "reverie/replay/local_service.h"

namespace reverie::python {

namespace nb = nanobind;

// The options from what `DefaultCheckpointer._options()` returns, or None.
std::optional<checkpoint::WorkerOptions> checkpoint_options(nb::handle given);

// "none", "interval", "sync".
Durability durability_of(const std::string& name);

// The memory that a pair (folder, memory_bytes) describes; null for None.
std::shared_ptr<ChunkMemory> chunk_memory(nb::handle given);

// The path and payload of the checkpoint that the store was loaded from; None if it began empty.
nb::object loaded_checkpoint(const StoreOrigin& origin);

// A client's: has its server or store write a checkpoint, and what that was loaded from.
std::string client_checkpoint(const ClientHandle& self, nb::bytes payload, nb::handle timeout_s);
nb::object client_origin(const ClientHandle& self, nb::handle timeout_s);

// Why the store's journal cannot be written; None if it can, or there is none.
nb::object journal_error(const LocalService& store);

// Binds the functions of `reverie checkpoint`.
void bind_inspection(nb::module_& m);

}  // namespace reverie::python
