"""``reverie serve``: a server in a process of its own, and the files that describe one.

    arguments ------------------------------------+
    TOML ---------> toml_document > toml_config --+--> ServerConfig --> reverie.Server
    a text proto -> text_proto > reverb_config ---+

Loaded by the command alone: ``import reverie`` does without it.
"""
