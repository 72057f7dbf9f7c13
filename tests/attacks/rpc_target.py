"""A broker and a peer to be attacked, in a process of their own: says where it listens."""

import sys

import numpy as np

import reverie

ANSWER_BYTES = 1 << 20


def main() -> None:
    answer = np.zeros(ANSWER_BYTES, np.uint8)
    # Hostile peers send no heartbeat; they are to be borne, not taken for dead.
    with reverie.Rpc("target", dead_after_s=60.0) as rpc, reverie.Broker(rpc):
        rpc.define("double", lambda value: 2 * value)
        rpc.define("large", lambda: answer)
        rpc.define_deferred("never", lambda _deferred, *_: None)
        print(rpc.listen("127.0.0.1:0"), flush=True)
        for _ in sys.stdin:
            pass


if __name__ == "__main__":
    main()
