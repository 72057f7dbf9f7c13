"""A broker and a peer to attack, in their own process; prints the address that it listens at."""

import sys

import numpy as np

import reverie

ANSWER_BYTES = 1 << 20


def main() -> None:
    answer = np.zeros(ANSWER_BYTES, np.uint8)
    dead_after_s = float(sys.argv[1])
    with reverie.Rpc("target", dead_after_s=dead_after_s) as rpc, reverie.Broker(rpc):
        rpc.define("double", lambda value: 2 * value)
        rpc.define("large", lambda: answer)
        rpc.define_deferred("never", lambda _deferred, *_: None)
        print(rpc.listen("127.0.0.1:0"), flush=True)
        for _ in sys.stdin:
            pass


if __name__ == "__main__":
    main()
