"""The demonstration: ``reverie demo``.

- `cartpole`: trainings of CartPole by the native learner, as many at a time as there are cores;
- `served`: the same over a server, with learner and actors in processes of their own, which
  `killed` kills in the middle and starts again;
- `lander`: LunarLander by native actors and learners on all cores;
- `run` and `report`: the acts one after the other, and what is shown of them.
"""
