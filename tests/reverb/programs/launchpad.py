"""A stub of the package launchpad, which no longer installs: what Acme's signals call of it."""


def register_stop_handler(handler):
    """Acme asks to be told about Ctrl-C; no test presses it."""


def unregister_stop_handler(handler):
    """The same, back."""
