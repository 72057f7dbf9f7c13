"""A client in its own process that draws one item of a table and prints the memory it took.

Usage: reader.py ADDRESS TABLE; prints the peak of resident memory above the start, in MiB.
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
