"""Arguments: their names, their order, their defaults, and which are keywords only."""

import inspect
import re

import pytest

# What programs may write; more optional arguments may follow.
CALLS = """
Table(name, sampler, remover, max_size, rate_limiter, max_times_sampled=0, extensions=(),
    signature=None)
Table.queue(name, max_size, extensions=(), signature=None)
Table.stack(name, max_size, extensions=(), signature=None)
Table.replace(self, name=None, sampler=None, remover=None, max_size=None, rate_limiter=None,
    max_times_sampled=None, extensions=None, signature=None)
Server(tables=None, port=None, checkpointer=None)
Server.stop(self)
Server.wait(self)
Server.localhost_client(self)
Client(server_address)
Client.insert(self, data, priorities)
Client.writer(self, max_sequence_length, delta_encoded=False, chunk_length=None,
    max_in_flight_items=25)
Client.sample(self, table, num_samples=1, *, emit_timesteps=True, unpack_as_table_signature=False)
Client.mutate_priorities(self, table, updates=None, deletes=None)
Client.reset(self, table)
Client.server_info(self, timeout=None)
Client.checkpoint(self)
Client.trajectory_writer(self, num_keep_alive_refs, *, validate_items=True)
Client.structured_writer(self, configs)
Writer.append(self, data)
Writer.append_sequence(self, sequence)
Writer.create_item(self, table, num_timesteps, priority)
Writer.flush(self)
Writer.close(self, retry_on_unavailable=True)
TrajectoryWriter.flush(self, block_until_num_items=0, timeout_ms=None)
TrajectoryWriter.end_episode(self, clear_buffers=True, timeout_ms=None)
structured.StructuredWriter.flush(self, block_until_num_items=0, timeout_ms=None)
structured.StructuredWriter.end_episode(self, clear_buffers=True, timeout_ms=None)
structured.create_reference_step(step_structure)
structured.pattern_from_transform(step_structure, transform)
structured.create_config(pattern, table, conditions=(), priority=None)
structured.unpack_pattern(config)
structured.infer_signature(configs, step_spec)
structured.constant_priority_fn(value)
structured.td_error(max_priority_weight, step_structure, get_field_from_step_fn)
rate_limiters.RateLimiter(samples_per_insert, min_size_to_sample, min_diff, max_diff)
rate_limiters.MinSize(min_size_to_sample)
rate_limiters.SampleToInsertRatio(samples_per_insert, min_size_to_sample, error_buffer)
rate_limiters.Queue(size)
rate_limiters.Stack(size)
checkpointers.default_checkpointer(group=None)
checkpointers.DefaultCheckpointer(path, group="", fallback_checkpoint_path=None)
checkpointers.TempDirCheckpointer()
TFClient(server_address, shared_name=None, name="reverb")
TFClient.sample(self, table, data_dtypes, name=None)
TFClient.insert(self, data, tables, priorities, name=None)
TFClient.update_priorities(self, table, keys, priorities, name=None)
PatternDataset(input_dataset, configs, respect_episode_boundaries, is_end_of_episode)
TrajectoryDataset(server_address, table, dtypes, shapes, max_in_flight_samples_per_worker,
    num_workers_per_iterator=-1, max_samples_per_stream=-1, rate_limiter_timeout_ms=-1,
    max_samples=-1)
TimestepDataset(server_address, table, dtypes, shapes, max_in_flight_samples_per_worker,
    num_workers_per_iterator=-1, max_samples_per_stream=-1, rate_limiter_timeout_ms=-1,
    max_samples=-1)
TrajectoryDataset.from_table_signature(server_address, table, max_in_flight_samples_per_worker,
    num_workers_per_iterator=-1, max_samples_per_stream=-1, rate_limiter_timeout_ms=-1,
    get_signature_timeout_secs=None, max_samples=-1)
TimestepDataset.from_table_signature(server_address, table, max_in_flight_samples_per_worker,
    num_workers_per_iterator=-1, max_samples_per_stream=-1, rate_limiter_timeout_ms=-1,
    get_signature_timeout_secs=None, max_samples=-1)
"""


FOUND = re.findall(r"^([\w.]+)\((.*?)\)$", CALLS, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize(("name", "arguments"), FOUND, ids=[name for name, _ in FOUND])
def test_a_call_has_the_arguments_of_reverb(reverb, name, arguments):
    found = reverb
    for part in name.split("."):
        found = getattr(found, part)
    model = eval(f"lambda {' '.join(arguments.split())}: None")
    expected = inspect.signature(model).parameters.values()
    taken = list(inspect.signature(found).parameters.values())
    shown = [(each.name, each.kind, each.default) for each in taken]
    assert shown[: len(expected)] == [(each.name, each.kind, each.default) for each in expected]
    for each in taken[len(expected) :]:
        gathers = each.kind in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
        assert gathers or each.default is not each.empty, each
