"""A stub of the package launchpad, which cannot be installed any more: what Acme calls of it."""


def register_stop_handler(handler):
    """Acme registers a handler for Ctrl-C, which no test presses."""


def unregister_stop_handler(handler):
    """Acme removes the handler."""
