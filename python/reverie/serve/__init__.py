"""``reverie serve``: a server in a process of its own, and the files that describe one.

    arguments ------------------------------------+
    TOML file -------> toml_config --+            +--> ServerConfig --> reverie.Server
    Reverb's textproto --> text_proto --> reverb_config --+

Loaded by the command alone: ``import reverie`` does without it.
"""
