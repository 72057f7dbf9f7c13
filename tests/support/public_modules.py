"""The modules with public names, for all tests that find by reflection what is public."""

# Modules whose public names belong to the package, besides ``reverie`` itself.
PUBLIC = [
    "reverie",
    "reverie.agents",
    "reverie.batcher",
    "reverie.checkpointers",
    "reverie.envs",
    "reverie.envs.atari",
    "reverie.envs.native",
    "reverie.envs.vector_env",
    "reverie.errors",
    "reverie.extensions",
    "reverie.groups",
    "reverie.gym",
    "reverie.moolib",
    "reverie.nn",
    "reverie.rate_limiters",
    "reverie.reverb",
    "reverie.rl",
    "reverie.selectors",
    "reverie.structured",
    "reverie.transforms",
    "reverie.weights",
]
