"""A look-up by key in one file of many keys, with its filter and index in parts, and each as one block.

For each it prints the processor time of a look-up, and the bytes that system calls read for it.

    python bench/filters.py [--keys 2000000] [--cache-mb 64]
"""

from __future__ import annotations

import argparse
import random
import struct
import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import process_time

from rocksdict import BlockBasedOptions, Cache, Options, Rdict, WriteBatch

from noria.storage.rocks.options import BLOOM_BITS, table_options

LOOKUPS, CHUNK = 3_000, 20_000


def key(i: int) -> bytes:
    return struct.pack(">q", i * 2_654_435_761 % 2**40)


def one_block(cache: Cache) -> Options:
    """Return the options before filters and indexes were divided."""
    options, blocks = table_options(), BlockBasedOptions()
    blocks.set_block_cache(cache)
    blocks.set_bloom_filter(BLOOM_BITS, False)
    blocks.set_cache_index_and_filter_blocks(True)
    options.set_block_based_table_factory(blocks)
    return options


def filled(path: str, options: Options, keys: int) -> Rdict:
    options.create_if_missing(True)
    db = Rdict(path, options)
    for at in range(0, keys, CHUNK):
        batch = WriteBatch(raw_mode=True)
        for i in range(at, min(at + CHUNK, keys)):
            batch.put(key(i), bytes(30))
        db.write(batch)
    db.flush()
    db.compact_range(None, None)
    return db


def bytes_read() -> int:
    return int(Path("/proc/self/io").read_text().split()[1])


def cost(db: Rdict, keys: Sequence[bytes]) -> tuple[float, float]:
    """Return the microseconds of processor time, and the KB read, of a look-up."""
    before, start = bytes_read(), process_time()
    for one in keys:
        db.get(one)
    seconds, read = process_time() - start, bytes_read() - before
    return seconds / len(keys) * 1e6, read / len(keys) / 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=2_000_000)
    parser.add_argument("--cache-mb", type=int, default=64)
    given = parser.parse_args()
    for name in ("one block", "in parts"):
        cache = Cache(given.cache_mb * 2**20)
        with tempfile.TemporaryDirectory() as path:
            options = one_block(cache) if name == "one block" else table_options(cache=cache)
            db = filled(path, options, given.keys)
            keys = [key(i) for i in random.Random(1).sample(range(given.keys), LOOKUPS)]
            cost(db, keys[:LOOKUPS // 3])
            for what, some in (("present", keys), ("absent", [k[:-1] + bytes([k[-1] ^ 0x80]) for k in keys])):
                us, kb = cost(db, some)
                print(f"{name}, {what} keys: {us:.1f} µs, {kb:,.1f} KB a look-up", flush=True)
            db.close()


if __name__ == "__main__":
    main()
