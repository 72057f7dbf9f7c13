"""The demonstration: double Q-learning with prioritised replay on CartPole, in the store.

``reverie demo`` trains a few seeds, each in a process of its own with an embedded store, shows
how they fare, and ends with a table and a learning curve. Read on in this order:

- `actor`: what is written into the store, and how windows of steps become items;
- `training`: the loop that acts, samples, learns and writes priorities back;
- `double_dqn` and `network`: the learner, in NumPy;
- `training_processes`: one process per seed, and how they end;
- `progress` and `report`: what is shown.
"""
