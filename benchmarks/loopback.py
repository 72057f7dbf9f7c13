"""The kernel's cost of moving items of 40 kB through TCP between processes on one machine.

CPU microseconds per item of a process that does nothing else: one that sends, by how many items a
system call gathers, and with MSG_ZEROCOPY, whose completions tell whether the kernel copied anyway;
and one that receives from 8 others, or sends to 8 others, as a server does. No server that moves
items through such sockets can use less (``served.py`` prints it with the servers).

    python benchmarks/loopback.py [ITEMS [ROUNDS]]
"""

import os
import resource
import selectors
import socket
import struct
import sys
import time

ITEM_BYTES = 40_060
KEPT = 500  # items that are sent by turns, like those of a table
SO_ZEROCOPY = 60
MSG_ZEROCOPY = 0x4000000
COPIED = 1  # SO_EE_CODE_ZEROCOPY_COPIED
CASES = [(1, False), (6, False), (25, False), (100, False), (6, True), (25, True)]


def connected_to_a_reader() -> socket.socket:
    """A connection to a child that reads and drops everything, and ends with the connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    if os.fork() == 0:
        connection = socket.create_connection(listener.getsockname())
        listener.close()
        into = bytearray(1 << 20)
        while connection.recv_into(into):
            pass
        os._exit(0)
    connection, _ = listener.accept()
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def completions(connection: socket.socket) -> tuple[int, int]:
    """How many zero-copy sends have completed since the last call, and how many were copied."""
    done = copied = 0
    while True:
        try:
            _, notes, _, _ = connection.recvmsg(0, 512, socket.MSG_ERRQUEUE | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return done, copied
        for _, _, data in notes:
            _, _, _, code, _, first, last = struct.unpack("IBBBBII", data[:16])
            done += last - first + 1
            copied += last - first + 1 if code == COPIED else 0


def send(items: int, gathered: int, zerocopy: bool) -> tuple[float, float, int, int]:
    """System and user CPU microseconds per item; the sends with MSG_ZEROCOPY, and those copied."""
    rows = [os.urandom(ITEM_BYTES) for _ in range(KEPT)]
    done = copied = 0
    with connected_to_a_reader() as connection:
        if zerocopy:
            connection.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)
        before = resource.getrusage(resource.RUSAGE_SELF)
        for begin in range(0, items, gathered):
            parts = [memoryview(rows[(begin + i) % KEPT]) for i in range(gathered)]
            while parts:
                sent = connection.sendmsg(parts, [], MSG_ZEROCOPY if zerocopy else 0)
                while parts and sent >= len(parts[0]):
                    sent -= len(parts.pop(0))
                if sent > 0:
                    parts[0] = parts[0][sent:]
                if zerocopy:
                    more, of_them = completions(connection)
                    done, copied = done + more, copied + of_them
        after = resource.getrusage(resource.RUSAGE_SELF)
    os.wait()
    system = (after.ru_stime - before.ru_stime) / items * 1e6
    return system, (after.ru_utime - before.ru_utime) / items * 1e6, done, copied


def bare_server_us(direction: str, seconds: float, clients: int = 8) -> tuple[float, float]:
    """System and user CPU microseconds per item of a process that has ``clients`` clients.

    With "write" they send and it receives, always into the same memory; with "read" it sends.
    """
    result, told = os.pipe()
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        os.write(told, struct.pack("dd", *_serve_bare(listener, direction, seconds, clients)))
        os._exit(0)
    address = listener.getsockname()
    listener.close()
    children = []
    for _ in range(clients):
        children.append(os.fork())
        if children[-1] == 0:
            _be_bare_client(address, direction)
    system, user = struct.unpack("dd", os.read(result, 16))
    for child in (server, *children):
        os.waitpid(child, 0)
    os.close(result)
    os.close(told)
    return system, user


def _serve_bare(
    listener: socket.socket, direction: str, seconds: float, clients: int
) -> tuple[float, float]:
    connections = [listener.accept()[0] for _ in range(clients)]
    ready = selectors.DefaultSelector()
    event = selectors.EVENT_READ if direction == "write" else selectors.EVENT_WRITE
    for connection in connections:
        connection.setblocking(False)
        ready.register(connection, event)
    into = bytearray(256 << 10)
    items = [os.urandom(ITEM_BYTES) for _ in range(KEPT)]
    left = dict.fromkeys(connections, memoryview(items[0]))
    moved = 0
    before = resource.getrusage(resource.RUSAGE_SELF)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for key, _ in ready.select(timeout=0.1):
            connection = key.fileobj
            assert isinstance(connection, socket.socket)
            if direction == "write":
                moved += connection.recv_into(into)
                continue
            size = connection.send(left[connection])
            moved += size
            rest = left[connection][size:]
            left[connection] = rest or memoryview(items[moved // ITEM_BYTES % KEPT])
    after = resource.getrusage(resource.RUSAGE_SELF)
    count = max(moved, 1) / ITEM_BYTES
    return (
        (after.ru_stime - before.ru_stime) / count * 1e6,
        (after.ru_utime - before.ru_utime) / count * 1e6,
    )


def _be_bare_client(address: tuple[str, int], direction: str) -> None:
    """Sends, or reads and drops, until the server is gone; then ends the process."""
    try:
        with socket.create_connection(address) as connection:
            if direction == "read":
                into = bytearray(1 << 20)
                while connection.recv_into(into):
                    pass
            item = os.urandom(ITEM_BYTES)
            while direction == "write":
                connection.sendall(item)
    except OSError:
        pass  # the server has ended the connection
    os._exit(0)


def main(items: int, rounds: int) -> None:
    """Prints a line for each case and round."""
    for _ in range(rounds):
        for gathered, zerocopy in CASES:
            system, user, done, copied = send(items, gathered, zerocopy)
            note = f", {copied} of {done} zero-copy calls were copied" if zerocopy else ""
            print(f"{gathered:4} items a call: {system:.1f} system, {user:.1f} user us{note}")
        for direction, what in (("write", "received from"), ("read", "sent to")):
            system, user = bare_server_us(direction, items * 4e-5)
            print(f"{what} 8 clients: {system:.1f} system, {user:.1f} user us an item")


if __name__ == "__main__":
    main(
        int(sys.argv[1]) if len(sys.argv) > 1 else 15_000,
        int(sys.argv[2]) if len(sys.argv) > 2 else 3,
    )
