"""Every public function, method and constructor of the package, and a valid call of each.

Reflection finds what is public; the signature, or the stubs if it is native, gives the parameters.
Valid arguments come from ``VALID``, by parameter name, and the objects that methods are called on
from ``SUBJECTS``, by class: tests of a function fail until it has entries there.
"""

import ast
import contextlib
import functools
import importlib
import inspect
import itertools
import re
import tempfile
import types
import typing
from pathlib import Path

import gymnasium
import numpy as np
import pytest

import reverie
from eventually import eventually
from public_modules import PUBLIC
from reverie import _patterns, structured

# Command-line programs, and modules that implement the public ones.
INTERNAL = re.compile(
    r"reverie\.(_.*|accumulator|agents\..*|broker_command|checkpoint_command|journal_command|demo.*|serve.*|batch_views|bench|client|completion|contrib.*|dataset|doctor|external|frameworks|hindsight|nests|packages|pattern_dataset|replay_buffer|replay_copies"
    r"|moolib\.broker|moolib_groups|moolib_rpc|moolib_settings|log_levels|replay_output|replay_sample|rpc|rpc_batches|rpc_calls|rpc_names|rpc_served_streams|rpc_streams|sample_(datasets|iterator|shapes)|sent_dataclasses|server|specs|store|table|tf_dataset|tls|trajectory_writer|trusted"
    r"|writer|envs\.(actions|adapters|agent_rows|backend|caller|messages|output|pool|process|remedies|rows|source|spaces|thread"
    r"|vector|vector_of_.*|worker)"
    r"|reverb\..*)$"
)


class Worlds(contextlib.ExitStack):
    """Objects that calls need: made on demand, closed at the end of the test."""

    @functools.cached_property
    def store(self):
        spec = {"a": reverie.TensorSpec((1, 2), np.float32)}
        table = reverie.Table(
            "t",
            reverie.selectors.Prioritized(1.0, seed=1),
            reverie.selectors.Fifo(),
            100,
            reverie.rate_limiters.MinSize(1),
            signature=spec,
        )
        store = self.enter_context(reverie.Store([table]))
        client = store.client()
        for _ in range(10):
            client.insert(self.step, {"t": 1.0})
        return store

    step = {"a": np.ones(2, np.float32)}  # noqa: RUF012 - as a user writes it

    @functools.cached_property
    def client(self):
        return self.store.client()

    @functools.cached_property
    def writer(self):
        writer = self.client.trajectory_writer(2)
        self.callback(writer.close)
        writer.append(self.step)
        return writer

    @functools.cached_property
    def buffer(self):
        buffer = reverie.ReplayBuffer(100, prioritized=True, seed=1)
        self.callback(buffer.close)
        for _ in range(5):
            buffer.add(*self.transition.values())
        return buffer

    transition = {  # noqa: RUF012
        "obs": np.zeros(2, np.float32),
        "action": 1,
        "reward": 1.0,
        "next_obs": np.ones(2, np.float32),
        "terminated": False,
    }

    @functools.cached_property
    def pool(self):
        pool = self.enter_context(reverie.EnvPool("CartPole-v1", 2, backend="native", seed=1))
        pool.reset().result()
        return pool

    @functools.cached_property
    def native_pool(self):
        from reverie.envs import native

        pool = self.enter_context(native.NativePool("CartPole-v1", 2, seed=1))
        pool.reset().result()
        return pool

    @functools.cached_property
    def member(self):
        """The only member of a group."""
        self.broker_address = self.enter_context(reverie.Broker()).listen()
        peer = self.enter_context(reverie.Rpc("member"))
        peer.connect(self.broker_address)
        group = self.enter_context(reverie.Group(peer, "g"))
        group.wait(1)
        return group

    @functools.cached_property
    def reference(self):
        return structured.create_reference_step({"a": None})

    @functools.cached_property
    def config(self):
        return structured.create_config({"a": self.reference["a"][-1:]}, "t")


def transition_item(name):
    return lambda world: world.transition[name]


def first_leaf(step):
    """A user's function that finds a leaf in any nest."""
    while isinstance(step, (dict, list, tuple)) and len(step) > 0:
        step = next(iter(step.values() if isinstance(step, dict) else step))
    return step


RISING = itertools.count(5)  # for versions
NUMBERS = [0.5, 0.25]  # [B], for batches of two
ROWS = [NUMBERS, NUMBERS]  # [B, A], [B, T], [B, D]
SHORT = reverie.TrainSettings(
    seed=1, steps=60, warmup_steps=50, hidden=(4,), batch_size=4, actors=0
)


class Agent:
    """A policy and learner for CartPole."""

    def act(self, observation, *, step, explore):  # noqa: ARG002
        return np.zeros(len(observation), int)

    def learn(self, batch, *, progress):  # noqa: ARG002
        return np.ones(len(batch["reward"]))

    def state_dict(self):
        return {"w": np.zeros(1)}

    def load_state_dict(self, state):
        pass


def stepped_network(_world):
    """A network that has stored a forward pass of two rows."""
    network = reverie.nn.Mlp((2, 2), seed=1)
    network.forward(ROWS)
    return network


def trainer(world):
    return world.enter_context(reverie.agents.Trainer("dqn", "CartPole-v1", SHORT))


def loop(world):
    agent = Agent()
    return world.enter_context(reverie.agents.Loop(agent, agent, "CartPole-v1", SHORT))


@functools.cache
def trained_folder():
    """The folder of a training; tests only read it."""
    folder = tempfile.mkdtemp()
    reverie.train("dqn", "CartPole-v1", SHORT, final_episodes=1, out=folder)
    return folder


def result(_world):
    return reverie.train("dqn", "CartPole-v1", SHORT, final_episodes=1)


# Valid arguments by parameter name, or by "function.name" if a function takes another value. A
# value that depends on a world is a function of it.
VALID = {
    "External.dtype": "f4",
    "External.file": "shard",
    "External.offset": 0,
    "External.size_bytes": None,
    "Client.insert_rows.data": lambda _: {"a": np.ones((1, 2), np.float32)},
    "Client.insert_rows.items": lambda _: [(0, 1)],
    "Client.insert_rows.priorities": lambda _: [1.0],
    "files": None,
    "algorithm": "ddqn",
    "TrainSettings.from_options.options": lambda _: {"seed": 1, "hidden": "64,64"},
    "convert.source": "a",
    "convert.target": "b",
    "train.env": "CartPole-v1",
    "train.agent_timeout_s": None,
    "train.checkpoint_every_s": 60.0,
    "train.device": "cpu",
    "train.env_backend": "auto",
    "train.env_options": None,
    "train.env_timeout_s": 60.0,
    "train.final_episodes": 1,
    "train.learner": "native",
    "train.out": None,
    "train.report": None,
    "train.resume": False,
    "train.settings": lambda _: reverie.TrainSettings(
        seed=1, steps=60, warmup_steps=50, hidden=(4,), batch_size=4
    ),
    "tune_cores.device": "cpu",
    "tune_cores.learner": "native",
    "action": transition_item("action"),
    "actions": lambda _: [0, 0],
    "address": "localhost:1",
    "agent_timeout_s": 60.0,
    "alpha": 0.6,
    "autoreset_mode": "SameStep",
    "backend": "native",
    "begin": 0,
    "batch": 0,
    "batch_size": 2,
    "beta": 0.4,
    "block_until_num_items": 0,
    "burn_in": 0,
    "capacity": 100,
    "check_items": True,
    "checkpoint_every": None,
    "checkpoint_every_inserts": None,
    "checkpointer": None,
    "chunk_length": 1,
    "clear_buffers": True,
    "client": lambda world: world.client._native,
    "codec": "auto",
    "conditions": lambda _: [structured.Condition.step_index() >= 1],
    "config": lambda world: world.config,
    "configs": lambda world: [world.config],
    "convert": None,
    "copy": True,
    "count": 1,
    "create_env": "CartPole-v1",
    "data": lambda world: world.step,
    "data_references": lambda world: [world.writer.history["a"][-1]],
    "decay": 0.5,
    "deletes": lambda _: [1],
    "delta_encoded": False,
    "device": None,
    "dim": 0,
    "distinct": False,
    "divisor": 2,
    "drop_last": False,
    "durability": "none",
    "dtype": np.float32,
    "dtypes": lambda _: {"a": np.float32},
    "each_address": False,
    "emit_timesteps": True,
    "ends_on_life_loss": False,
    "env": "CartPole-v1",
    "env_id": "CartPole-v1",
    "env_ids": None,
    "env_index": 0,
    "env_kwargs": lambda _: {},
    "error_buffer": 10.0,
    "extensions": (),
    "fires_on_reset": False,
    "first_step_resets": True,
    "flexible_batch_size": 1,
    "frame_stack": 1,
    "framework": "numpy",
    "full_action_space": True,
    "function": lambda _: lambda array: array,
    "game": "pong",
    "gamma": 0.99,
    "get_field_from_step_fn": lambda _: first_leaf,
    "get_signature_timeout_secs": 0.5,
    "grace_s": 0.0,
    "height": 84,
    "host": "localhost",
    "index": 0,
    "info": None,
    "input_dataset": lambda world: [world.step],
    "insecure": False,
    "is_end_of_episode": lambda _: lambda step: False,  # noqa: ARG005
    "key": -1,
    "keys": lambda _: [1],
    "limits": reverie.ServerLimits(),
    "mask": None,
    "max_bytes": None,
    "memory_bytes": 16 << 20,
    "spill_folder": ".",
    "max_chunk_length": 1,
    "max_diff": 10.0,
    "max_frames": 1000,
    "max_in_flight_items": 10,
    "max_in_flight_samples_per_worker": 2,
    "max_priority_weight": 0.5,
    "max_samples": 1,
    "max_samples_per_stream": -1,
    "max_sequence_length": 2,
    "max_size": 100,
    "max_times_sampled": 0,
    "min_diff": -10.0,
    "min_size_to_sample": 1,
    "n_step": 1,
    "name": "t",
    "native": lambda world: world.client._native,
    "nest": lambda world: world.step,
    "next_obs": transition_item("next_obs"),
    "noop_max": 1,
    "num_batches": 1,
    "num_envs": 2,
    "num_inserts": 1,
    "num_keep_alive_refs": 2,
    "num_processes": 1,
    "num_samples": 1,
    "num_threads": 0,
    "num_timesteps": 1,
    "num_workers": None,
    "num_workers_per_iterator": 1,
    "obs": transition_item("obs"),
    "on_corrupt": "remove",
    "options": None,
    "out": None,
    "output": "numpy",
    "pad": False,
    "pad_sequences": True,
    "hindsight": None,
    "transforms": (),
    "is_ahead": False,
    "Hindsight.reward": lambda _: lambda *_: 0,
    "Hindsight.terminated": None,
    "strategy": "future",
    "goals": 4,
    "achieved": "achieved_goal",
    "desired": "desired_goal",
    "scale": 2.0,
    "clip": 1.0,
    "epsilon": 1e-8,
    "moments": None,
    "RunningMoments.update.obs": lambda _: np.zeros((2, 3)),
    "RunningMoments.normalized.obs": lambda _: np.zeros((2, 3)),
    "partial_step": False,
    "path": "a",
    "pattern": lambda world: {"a": world.reference["a"][-1:]},
    "period": None,
    "pin_memory": False,
    "pool": lambda world: world.pool,
    "port": None,
    "prefetch": 1,
    "preset": "dqn",
    "prioritized": True,
    "priorities": lambda _: [1.0],
    "priority": None,
    "priority_exponent": 1.0,
    "queue_size": 2,
    "radius": 1,
    "rate_limiter": reverie.rate_limiters.MinSize(1),
    "rate_limiter_timeout_ms": 100,
    "refuse_nan": False,
    "remover": reverie.selectors.Fifo(),
    "repeat": 4,
    "respect_episode_boundaries": True,
    "restarts": 0,
    "retry_on_unavailable": True,
    "retry_timeout_s": 0.2,
    "reward": transition_item("reward"),
    "reward_clip": None,
    "sampler": reverie.selectors.Uniform(),
    "samples_per_insert": 1.0,
    "protocol": "grpc",
    "sampling": "even",
    "seed": 1,
    "seeds": None,
    "sequence": lambda _: {"a": np.ones((2, 2), np.float32)},
    "sequence_length": None,
    "server_address": lambda world: world.client,
    "shape": (2,),
    "shapes": lambda _: {"a": (2,)},
    "signature": None,
    "size": 2,
    "squeeze": False,
    "stack": 4,
    "state": lambda _: [0.0] * 5,
    "step_spec": lambda _: {"a": reverie.TensorSpec((2,), np.float32)},
    "step_structure": lambda _: {"a": None},
    "sticky": 0.0,
    "table": "t",
    "tables": lambda _: [reverie.Table.queue("t", 9)],
    "terminated": transition_item("terminated"),
    "tickets": lambda _: [1],
    "wait": True,
    "weights": "batch",
    "timeout": 1.0,
    "timeout_ms": None,
    "takes_values": False,
    "timeout_s": 1.0,
    "window": 4,
    "tls": None,
    "token": "",
    "trajectory": lambda world: {"a": world.writer.history["a"][-1:]},
    "transform": lambda _: lambda step: step,
    "truncated": False,
    "undo_unsent": False,
    "unix_path": None,
    "unpack_as_table_signature": False,
    "update_count": 1,
    "updates": lambda _: {1: 1.0},
    "validate_items": True,
    "value": 1,
    "values": 1,
    "version": 0,
    "width": 84,
    "worker": None,
    "wrappers": (),
    # Groups.
    "Broker.rpc": lambda world: rpc(world),
    "Group.rpc": lambda world: rpc(world),
    "Weights.rpc": lambda world: rpc(world),
    "Weights.publish.version": lambda _: next(RISING),
    "Weights.publish.value": 1,
    "shared_memory": True,
    "sources": (),
    "above": None,
    "broker": "broker",
    "sort_order": 0,
    "stall_timeout_s": None,
    "op": "sum",
    "Group.all_reduce.data": 1.0,
    "Group.broadcast.source": lambda world: world.member.rpc.name,
    "parameters": lambda _: [np.zeros(2)],
    "buffers": (),
    "average": "samples",
    "finite": False,
    "state_interval_s": 600.0,
    "gradients": lambda _: [np.ones(2)],
    "Accumulator.group": None,
    "Accumulator.set_state.state": 1,
    "Accumulator.zero_gradients.parameters": None,
    "order": 0,
    "moolib.Broker.rpc": lambda world: moolib_rpc(world),
    "moolib.Broker.set_name.name": "broker",
    "moolib.Group.rpc": lambda world: moolib_rpc(world),
    "moolib.Group.set_timeout.seconds": 1.0,
    "moolib.Group.all_reduce.op": None,
    "round_": lambda world: world.member.all_reduce("x", 1.0),
    # Trainings.
    "agent": lambda _: Agent(),
    "Loop.policy": lambda _: Agent(),
    "learner": lambda _: Agent(),
    "settings": SHORT,
    "env_backend": "auto",
    "env_options": None,
    "env_timeout_s": 60.0,
    "Loop.output": "numpy",
    "resume": None,
    "policy": None,
    "episodes": 1,
    "first": 0,
    "cores": 1,
    "measure_s": 0.001,
    "TrainResult.save.folder": lambda _: tempfile.mkdtemp(),
    "evaluate.folder": lambda _: trained_folder(),
    "Trainer.save.path": lambda _: tempfile.mkdtemp(),
    "Trainer.listen": None,
    "Trainer.token": None,
    "act.address": "127.0.0.1:1",  # no training listens there
    "act.token": None,
    "act.env_backend": None,
    "patience_s": 0.0,
    "Loop.save.path": lambda _: tempfile.mkdtemp(),
    "Loop.load.path": "/nowhere/at/all",
    # Networks and learning rules.
    "widths": (2, 2),
    "activation": "relu",
    "output_activation": "none",
    "initializer": "orthogonal",
    "gains": lambda _: [1.0],
    "metadata": None,
    "Mlp.load.path": "/nowhere/at/all",
    "Mlp.save.path": lambda _: f"{tempfile.mkdtemp()}/net",
    "vector": None,
    "Mlp.load_state_dict.state": lambda _: reverie.nn.Mlp((2, 2), seed=2).state_dict(),
    "inputs": ROWS,
    "output_gradient": ROWS,
    "Mlp.approach.source": lambda _: reverie.nn.Mlp((2, 2), seed=2),
    "rate": 0.5,
    "network": lambda _: reverie.nn.Mlp((2, 2), seed=2),
    "learning_rate": 1e-3,
    "betas": (0.9, 0.999),
    "norm_max": 1.0,
    "gradient": lambda _: np.zeros(12, np.float32),
    "Adam.restore.mean": lambda _: np.zeros(12, np.float32),
    "square": lambda _: np.zeros(12, np.float32),
    "step_count": 1,
    "rewards": NUMBERS,
    "discounts": NUMBERS,
    "next_values": NUMBERS,
    "n_step_returns.rewards": ROWS,
    "n_step_returns.discounts": ROWS,
    "bootstrap": NUMBERS,
    "q_targets.next_values": ROWS,
    "next_online_values": ROWS,
    "next_target_values": ROWS,
    "first_values": NUMBERS,
    "second_values": NUMBERS,
    "log_probabilities": NUMBERS,
    "temperature": 0.1,
    "next_probabilities": ROWS,
    "value_min": -1.0,
    "value_max": 1.0,
    **{
        f"{rule}.{name}": ROWS
        for rule in ("generalized_advantages", "v_trace")
        for name in ("rewards", "discounts", "values", "next_values")
    },
    "lambda_": 0.9,
    "ends": None,
    "ratios": ROWS,
    "rho_max": 1.0,
    "advantage_rho_max": 1.0,
    "errors": NUMBERS,
    "delta": 1.0,
    "mean": ROWS,
    "log_std": ROWS,
    "noise": ROWS,
    "squashed_gaussian_log_probabilities.actions": ROWS,
    "squashed_gaussian_gradient.actions": ROWS,
    "add_gaussian_noise.actions": ROWS,
    "action_gradient": ROWS,
    "log_probability_gradient": NUMBERS,
    "step": 1,
    "epsilon_at.first": 1.0,
    "last": 0.5,
    "epsilon_at.decay": "linear",
    "actor": 0,
    "actor_count": 2,
    "base": 0.4,
    "epsilon_greedy.values": ROWS,
    "rng": lambda _: np.random.default_rng(1),
    "normals": ROWS,
    "sigma": 0.1,
    "low": NUMBERS,
    "high": NUMBERS,
    "noise_max": 0.5,
    "ornstein_uhlenbeck_step.state": ROWS,
    "ornstein_uhlenbeck_step.mean": 0.0,
    "theta": 0.1,
    "dt": 0.01,
    "probabilities": NUMBERS,
    "item_count": 2,
    "by_maximum": True,
    # Peers.
    "Rpc.name": None,
    "Rpc.define.name": "f",
    "Rpc.define_deferred.name": "f",
    "Rpc.undefine.name": "f",
    "Rpc.listen.address": "127.0.0.1:0",
    "Broker.listen.address": "127.0.0.1:0",
    "Rpc.functions.peer": None,
    "Rpc.sync.function": "f",
    "Rpc.async_.function": "f",
    "Rpc.async_callback.function": "f",
    "Rpc.define.function": lambda _: lambda *_: 0,
    "Rpc.define_deferred.function": lambda _: lambda *_: 0,
    "Rpc.define_stream.name": "f",
    "Rpc.define_stream.function": lambda _: lambda *_: (),
    "Rpc.stream.function": "f",
    "callback": lambda _: lambda *_: 0,
    "cat": False,
    "dynamic_batching": False,
    "error": "no",
    "gatherer": lambda world: rpc(world).define_queue("q")._gatherer,
    "is_batched": False,
    "is_ready": None,
    "level": "error",
    "logging_module": None,
    "max_wait_s": 0.005,
    "moolib.Future.future": lambda world: rpc(world).async_("server", "f"),
    "moolib.Future.function": "f",
    "moolib.Queue.enqueue.return_callback": lambda _: lambda *_: 0,
    "moolib.Queue.enqueue.args": None,
    "moolib.Queue.enqueue.kwargs": None,
    "names": ("tcp", "ipc"),
    "allow_pickle": False,
    "register_dataclass.cls": None,
    "register_dataclass.name": None,
    "seconds": 0.05,
    "Rpc.batch_size": None,
    "Rpc.max_wait_s": None,
    "dead_after_s": 1.5,
    "fallback_checkpoint_path": None,
    "find_timeout_s": 0.05,
    "reach_timeout_s": 0.05,
    "group": "",
    "keep": 1,
    "on_mismatch": "refuse",
    "payload": b"",
    "idempotent": False,
    "max_pending_calls": 10,
    "max_threads": 2,
    "peer": "server",
    "transports": ("shm", "unix", "tcp"),
    # Parameters whose name has another meaning in one function.
    "AtariEnv.pool": True,
    "Batch.to.device": "cpu",
    "Batch.to.output": "torch",
    "AtariEnv.step.action": 0,
    "moolib.EnvPool.step.action": lambda _: [0, 0],
    "batch_index": 0,
    "left": "step_index",
    "future": lambda world: world.pool.reset(),
    "stream": lambda world: world.client.dataset("t", 2)._stream,
    "Batcher.device": "cpu",
    "Client.insert.priorities": lambda _: {"t": 1.0},
    "Client.server_address": "localhost:1",
    "Client.seed": None,
    "Client.update_priorities.keys": None,
    "Client.update_priorities.tickets": lambda world: world.client.sample_batch("t", 1).tickets,
    "EnvStepperFuture.future": lambda world: world.pool.reset(),
    "AgentRows.env": lambda _: Agents(),
    "DmEnv.env": lambda _: Timed(),
    "GymVectorEnv.call.name": "reset_count",
    "GymVectorEnv.get_attr.name": "reset_count",
    "GymVectorEnv.reset.options": None,
    "GymVectorEnv.set_attr.name": "reset_count",
    "NativePool.reset_some.mask": lambda _: [True, True],
    "OldGym.env": lambda _: Old(),
    "OldGym.step.action": 0,
    "DmEnv.step.action": 0,
    "RateLimiter.max_diff": 1e9,
    "RateLimiter.min_diff": -1e9,
    "Writer.create_item.priority": 1.0,
    "EnvPool.batch_size": None,
    "EnvPool.restart.worker": 0,
    "moolib.EnvPool.batch_size": 1,
    "EnvPool.step.batch_index": 0,
    "native.spec.env_id": "CartPole-v1",
    "unbatch.batch": lambda world: world.step,
    "load_plugin.path": "/nowhere/at/all.so",
    "ReplayBuffer.load.beta": None,
    "ReplayBuffer.load.path": "/nowhere/at/all",
    "ReplayBuffer.load.transforms": (),
    "ReplayBuffer.save.path": lambda _: tempfile.mkdtemp(),
    "ReplayBuffer.update_priorities.tickets": lambda world: world.buffer.sample(1)["tickets"],
    "Store.__getitem__.name": "t",
    "ReplayBuffer.__getitem__.index": 0,
    "ColumnHistory.key": -1,
}


def server(world):
    made = reverie.Server([reverie.Table.queue("t", 9)])
    world.enter_context(made)
    return made


def legacy_writer(world):
    writer = world.client.writer(2)
    world.callback(lambda: None if writer._writer.closed else writer.close())
    writer.append(world.step)
    return writer


def atari_env(_world):
    from reverie.envs import atari

    env = atari.make("pong", noop_max=0)
    env.reset(seed=1)
    return env


class Old:
    """An environment of the old Gym."""

    reset_count = 0

    def seed(self, seed):
        pass

    def reset(self):
        return 0.0

    def step(self, _action):
        return 0.0, 0.0, False, {}


class Timed:
    """An environment of dm_env."""

    reward, discount, observation = 0.0, 1.0, np.zeros(2)
    task = types.SimpleNamespace(random=np.random.RandomState(1))

    def observation_spec(self):
        return self.observation

    def action_spec(self):
        return types.SimpleNamespace(num_values=2)

    def last(self):
        return False

    def reset(self):
        return self

    def step(self, _action):
        return self


class Agents:
    """A parallel environment of PettingZoo."""

    possible_agents = ("a", "b")

    def observation_space(self, _agent):
        return gymnasium.spaces.Box(0, 1, (2,))

    def action_space(self, _agent):
        return gymnasium.spaces.Discrete(2)

    def reset(self):
        pass

    def step(self):
        pass

    def close(self):
        pass


def vector_env(world):
    from reverie.envs.adapters import OldGym
    from reverie.envs.vector_env import GymVectorEnv

    def make():
        env = OldGym(Old())
        env.observation_space = gymnasium.spaces.Box(-9, 9, ())
        env.action_space = gymnasium.spaces.Discrete(2)
        return env

    envs = GymVectorEnv(make, 2, backend="thread")
    world.callback(envs.close)
    envs.reset()
    return envs


def old_gym(_world):
    from reverie.envs import OldGym

    return OldGym(Old())


def dm_env(_world):
    from reverie.envs import DmEnv

    return DmEnv(Timed())


def moolib_pool(world):
    from reverie import moolib

    return world.enter_context(moolib.EnvPool("CartPole-v1", 1, 2, 1, output="numpy"))


def moolib_batcher(_world):
    from reverie import moolib

    return moolib.Batcher(2, timeout_s=0.01)


def stepped(world):
    pool = world.pool
    future = pool.step([0, 0])
    future.result()
    return future


def structured_writer(world):
    writer = world.client.structured_writer([world.config])
    world.callback(writer.close)
    return writer


def trajectory_dataset(world, kind="TrajectoryDataset"):
    made = getattr(reverie, kind)
    return made(world.client, "t", {"a": np.float32}, {"a": (None, 2)}, 2)


def whole_writer(world):
    writer = world.client.trajectory_writer(2)
    world.callback(writer.close)
    writer.append_whole(world.step)
    return writer


def moolib_future(world):
    return moolib_pool(world).step(0, np.zeros(2, np.int64))


def rpc(world):
    return world.enter_context(reverie.Rpc(find_timeout_s=0.05))


def accumulator(world):
    """An accumulator that wants gradients."""
    made = reverie.Accumulator("a", [np.zeros(2)], (), world.member)
    world.callback(made.close)
    eventually(lambda: made.update() or made.wants_gradients())
    return made


def weights(world):
    made = world.enter_context(reverie.Weights(rpc(world), "policy"))
    made.publish(1, np.zeros(2))
    return made


def moolib_group(world):
    from reverie import moolib

    assert world.member
    peer = moolib_rpc(world)
    peer.connect(world.broker_address)
    group = moolib.Group(peer, "moolib")
    world.callback(group.leave)
    eventually(lambda: group.update() or group.active())
    return group


def moolib_broker(world):
    from reverie import moolib

    made = moolib.Broker()
    world.callback(made.close)
    return made


def moolib_accumulator(world):
    from reverie import moolib

    made = moolib.Accumulator("a", [np.zeros(2)], (), moolib_group(world))
    world.callback(made.close)
    eventually(lambda: made.update() or made.wants_gradients())
    return made


def moolib_rpc(world):
    from reverie import moolib

    made = moolib.Rpc()
    made.set_timeout(0.05)
    world.callback(made.close)
    return made


def moolib_queue(_world):
    from reverie import moolib

    made = moolib.Queue()
    for _ in range(9):
        made.enqueue(print)
    return made


def closed_queue(world):
    """A queue whose calls do not wait."""
    home = rpc(world)
    queue = home.define_queue("q")
    home.close()
    return queue


def deferred(world):
    from reverie.rpc import DeferredReturn

    return DeferredReturn._of(rpc(world)._pool, 1, 1, "caller", "f")


# The objects that methods are called on, by the name of the class.
SUBJECTS = {
    "Accumulator": accumulator,
    "Adam": lambda _: reverie.nn.Adam(reverie.nn.Mlp((2, 2), seed=2)),
    "AtariEnv": atari_env,
    "Batch": lambda world: world.client.sample_batch("t", 2),
    "Batcher": lambda _: reverie.Batcher(2, timeout_s=0.01),
    "Broker": lambda world: world.enter_context(reverie.Broker()),
    "BlockedReport": lambda world: world.client.why_blocked("t"),
    "Client": lambda world: world.client,
    "ColumnHistory": lambda world: world.writer.history["a"],
    "ConditionBuilder": lambda _: structured.Condition.step_index(),
    "DmEnv": dm_env,
    "Dataset": lambda world: world.enter_context(world.client.dataset("t", 2)),
    "EnvPool": lambda world: world.pool,
    "EnvStepperFuture": moolib_future,
    "Extension": lambda _: reverie.extensions.Statistics(),
    "Future": lambda world: rpc(world).async_("server", "f"),
    "Group": lambda world: world.member,
    "GymVectorEnv": vector_env,
    "Loop": loop,
    "Mlp": stepped_network,
    "Trainer": trainer,
    "TrainSettings": lambda _: SHORT,
    "TrainResult": result,
    "NativePool": lambda world: world.native_pool,
    "OldGym": old_gym,
    "PatternDataset": lambda world: reverie.PatternDataset(
        [world.step], [world.config], True, lambda _: False
    ),
    "ReferenceNode": lambda world: world.reference["a"],
    "ReplayBuffer": lambda world: world.buffer,
    "Round": lambda world: world.member.all_reduce("x", 1.0),
    "RunningMoments": lambda _: reverie.transforms.RunningMoments(),
    "Queue": closed_queue,
    "Rpc": rpc,
    "RpcDeferredReturn": deferred,
    "DeferredReturn": deferred,
    "Server": server,
    "ServerLimits": lambda _: reverie.ServerLimits(),
    "Store": lambda world: world.store,
    "StructuredWriter": structured_writer,
    "Table": lambda world: world.store.tables[0],
    "TimestepDataset": lambda world: trajectory_dataset(world, "TimestepDataset"),
    "TrajectoryColumn": lambda world: world.writer.history["a"][-1:],
    "TrajectoryDataset": trajectory_dataset,
    "TrajectoryWriter": lambda world: world.writer,
    "TrajectoryWriter.create_whole_item": whole_writer,
    "Writer": legacy_writer,
    "moolib.Accumulator": moolib_accumulator,
    "moolib.AllReduce": lambda world: moolib_group(world).all_reduce("x", 1.0),
    "moolib.Broker": moolib_broker,
    "moolib.Group": moolib_group,
    "moolib.Batcher": moolib_batcher,
    "moolib.EnvPool": moolib_pool,
    "moolib.Queue": moolib_queue,
    "moolib.Future": lambda world: moolib_rpc(world).async_("server", "f"),
    "moolib.Rpc": moolib_rpc,
    "Weights": weights,
}
# Classes whose brackets a user calls.
BRACKETS = {"Store", "ColumnHistory", "TrajectoryColumn", "ReferenceNode"}
# Methods after which a subject cannot be used any more.
ENDS = {"close", "leave", "stop"}


def modules():
    return [importlib.import_module(name) for name in PUBLIC]


def public_names(module):
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return list(listed)
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]


def is_record(kind):
    """Whether a class only holds its arguments, which are checked where it is used."""
    return (
        issubclass(kind, (BaseException, _patterns.Record))
        or hasattr(kind, "_fields")
        or hasattr(kind, "__dataclass_fields__")
    )


def name_in(module, name):
    home = module.__name__.removeprefix("reverie").removeprefix(".")
    return f"{home}.{name}" if home in ("moolib", "native") else name


def public_calls():
    """(name, class or None, method or None, callable) of all public callables."""
    found = {}
    for module in modules():
        for public in public_names(module):
            value = getattr(module, public)
            if inspect.ismodule(value) or not callable(value):
                continue
            name = name_in(module, public)
            if not isinstance(value, type):
                found.setdefault(id(value), (name, None, value))
                continue
            if not value.__module__.startswith("reverie") or getattr(value, "_is_protocol", False):
                continue
            if not is_record(value) and has_constructor(value):
                found.setdefault(id(value), (name, value, None))
            for method in methods(value):
                key = (id(value), method)
                found.setdefault(key, (f"{name}.{method}", value, method))
    return sorted(found.values(), key=lambda call: call[0])


def has_constructor(kind):
    if kind.__module__ == "reverie._reverie":
        return "__init__" in STUBS.get(kind.__name__, {})
    return any("__init__" in vars(base) for base in kind.__mro__[:-1])


def methods(kind):
    for name in dir(kind):
        is_bracket = name == "__getitem__" and kind.__name__ in BRACKETS
        if name.startswith("_") and not is_bracket:
            continue
        owner = next(base for base in kind.__mro__ if name in vars(base))
        value = vars(owner)[name]
        if not owner.__module__.startswith("reverie") or isinstance(value, property):
            continue
        if callable(value) or isinstance(value, (classmethod, staticmethod)):
            yield name


def stubs():
    """The native functions in the stubs, by class ("" for none) and name."""
    tree = ast.parse((Path(reverie.__file__).parent / "_reverie.pyi").read_text())
    found = {"": {}}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[""][node.name] = node
        if isinstance(node, ast.ClassDef):
            inner = [one for one in node.body if isinstance(one, ast.FunctionDef)]
            found[node.name] = {one.name: one for one in inner}
    return found


STUBS = stubs()


class Parameter(typing.NamedTuple):
    name: str
    annotation: str
    is_positional: bool


def parameters(kind, method, function):
    """The parameters of a call, without ``self``."""
    target = (
        function if kind is None else kind.__init__ if method is None else getattr(kind, method)
    )
    try:
        given = inspect.signature(target)
    except (ValueError, TypeError):
        return stub_parameters(kind, method, function)
    found = [
        Parameter(name, str(one.annotation), one.kind is one.POSITIONAL_ONLY)
        for name, one in given.parameters.items()
        if one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL) and not name.startswith("_")
    ]
    is_bound = inspect.ismethod(target) or kind is None
    if kind is not None and isinstance(
        inspect.getattr_static(kind, method or "__init__"), staticmethod
    ):
        is_bound = True
    return found if is_bound else found[1:]


def stub_parameters(kind, method, function):
    if kind is None:
        node = STUBS[""][function.__name__]
    else:
        name = method or "__init__"
        native = next(base for base in kind.__mro__ if name in STUBS.get(base.__name__, {}))
        node = STUBS[native.__name__][name]
    arguments = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
    found = [
        Parameter(one.arg, ast.unparse(one.annotation) if one.annotation else "Any", False)
        for one in arguments
    ]
    return found if kind is None else found[1:]


def valid(world, call, parameter):
    """A valid argument; of the matching names in VALID the longest is used."""
    parts = [*call.split("."), parameter]
    for begin in range(len(parts)):
        key = ".".join(parts[begin:])
        if key in VALID:
            value = VALID[key]
            return value(world) if callable(value) and not isinstance(value, type) else value
    for key in (f"{part}.{parameter}" for part in parts):
        if key in VALID:
            value = VALID[key]
            return value(world) if callable(value) and not isinstance(value, type) else value
    pytest.fail(f"{call}() takes {parameter}, of which VALID has none: add a valid argument for it")


def subject(world, name, kind):
    for key in (name, name.rsplit(".", 1)[0], kind.__name__):
        if key in SUBJECTS:
            return SUBJECTS[key](world)
    for base in kind.__mro__:
        if base.__name__ in SUBJECTS:
            return SUBJECTS[base.__name__](world)
    pytest.fail(f"SUBJECTS has no {kind.__name__} to call its methods on: add one")


def make_call(world, name, kind, method, function):
    """A callable that takes the call's arguments by keyword."""
    if kind is None:
        return function
    if method is None:
        return kind
    if isinstance(inspect.getattr_static(kind, method), (classmethod, staticmethod)):
        return getattr(kind, method)
    return getattr(subject(world, name, kind), method)


def run(call, takes, arguments):
    """Makes the call; if the result is an iterator, takes its first value."""
    given = dict(arguments)
    first = [given.pop(one.name) for one in takes if one.is_positional]
    if getattr(call, "__name__", "") == "__getitem__":
        first += given.values()
        given = {}
    result = call(*first, **given)
    if inspect.isgenerator(result):
        next(result, None)
        result.close()
    close = getattr(result, "close", None)
    if callable(close) and not isinstance(result, reverie.Client):
        close()
    if hasattr(result, "result") and hasattr(result, "done"):
        result.result()


CALLS = public_calls()
