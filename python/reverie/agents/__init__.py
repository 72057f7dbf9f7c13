"""Training by name: an algorithm and an environment in, a trained agent out.

    from reverie.agents import TrainSettings, train

    result = train("ddqn", "CartPole-v1", TrainSettings(seed=1, steps=30_000, hidden=(64, 64)))
    print(result.greedy_return)
    result.policy.save("policy.safetensors")

Native environments, networks and the replay run in C++, on threads of their own. The command is
``reverie train``; see docs/concepts/learn.md.
"""

from reverie._submodules import loaded_on_use
from reverie.agents.cores import CoreTuning, tune_cores
from reverie.agents.loop import Loop
from reverie.agents.protocols import Learner, Policy
from reverie.agents.remote import Acted, act
from reverie.agents.settings import TrainSettings, algorithms
from reverie.agents.trainer import Episode, Trainer, TrainProgress
from reverie.agents.training import TrainResult, evaluate, train

__all__ = [
    "Acted",
    "CoreTuning",
    "Episode",
    "Learner",
    "Loop",
    "Policy",
    "TrainProgress",
    "TrainResult",
    "TrainSettings",
    "Trainer",
    "act",
    "algorithms",
    "evaluate",
    "train",
    "tune_cores",
]

__getattr__ = loaded_on_use(__name__, "torch_agent")
