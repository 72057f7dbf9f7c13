"""A client that draws one item of a table, in a process of its own, and says what that took.

Usage: reader.py ADDRESS TABLE; prints MiB: what was resident most, beyond what it began with.
"""

import sys

from attack_peer import peak_mib, resident_mib

import reverie


def main() -> None:
    address, table = sys.argv[1:]
    client = reverie.Client(address, retry_timeout_s=30.0)
    client.sample_batch("replay", 1, timeout_s=30.0)
    before = resident_mib("self")
    batch = client.sample_batch(table, 1, timeout_s=30.0)
    assert len(batch) == 1
    print(peak_mib("self") - before)


if __name__ == "__main__":
    main()
