"""A TCP port that forwards to another port, and cuts connections at random."""

import contextlib
import random
import selectors
import socket
import threading

_PIECE = 1 << 16


class CuttingProxy:
    """Forwards each piece, in either direction, whole, or only its first bytes and then no more.

    A context manager; leaving it cuts all connections that are left.

    Args:
        port: The server's port on this machine.
        share: The share of pieces that end their connection.
        seed: The seed of the random choices.
    """

    def __init__(self, port, share, seed):
        self._server_port, self._share = port, share
        self._draw = random.Random(seed)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._stop, self._stopped = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.port = self._listener.getsockname()[1]
        self.cuts = 0

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._stop.send(b"x")
        self._thread.join(30)
        for one in (self._listener, self._stop, self._stopped):
            one.close()

    def _run(self):
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._stopped, selectors.EVENT_READ)
        while True:
            for key, _ in self._selector.select(30):
                if key.fileobj is self._stopped:
                    for held in list(self._selector.get_map().values()):
                        if held.data is not None:
                            held.fileobj.close()
                    self._selector.close()
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj.fileno() >= 0:  # not closed together with its other end
                    self._hand_on(key.fileobj, key.data)

    def _accept(self):
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._server_port), 10)
        except OSError:
            client.close()
            return
        self._selector.register(client, selectors.EVENT_READ, server)
        self._selector.register(server, selectors.EVENT_READ, client)

    def _hand_on(self, source, target):
        with contextlib.suppress(OSError):
            piece = source.recv(_PIECE)
            is_cut = self._draw.random() < self._share
            if piece and is_cut:
                self.cuts += 1
                target.sendall(piece[: self._draw.randrange(len(piece))])
            elif piece:
                target.sendall(piece)
                return
        for one in (source, target):
            self._selector.unregister(one)
            one.close()
