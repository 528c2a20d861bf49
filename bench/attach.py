"""Reads of a view from shared memory by a second process (design/decisions.md, 5).

The view is like the paper's StoriesWithVC: story id, title, author and votes, looked up by id.  Each read decodes its
rows to Python values (single keys) or to Arrow (batches), and stamps its key.  For comparison, the same process looks
row tuples up in a dictionary: no lookup in Python costs less.

    python bench/attach.py [--keys 100000] [--reads 200000] [--writes]

--writes: while the second process reads, the first updates the view in batches of 100 keys.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np
import pyarrow as pa

from noria.core.batch import Batch
from noria.core.types import BIGINT, TEXT, Field
from noria.state.symbols.symbols import SymbolTable
from noria.views.reader import attach
from noria.views.writer import ViewDirectory, WritableView

SEED = 1
BATCH = 10_000
FIELDS = [Field("id", BIGINT), Field("title", TEXT), Field("author", TEXT), Field("votes", BIGINT)]


def publish(path: str, keys: int) -> tuple[WritableView, np.ndarray]:
    """Make the view with all keys present.  Return it and its columns."""
    symbols = SymbolTable(path)
    view = ViewDirectory(path, symbols, 1).create("stories", FIELDS, (0,), len(FIELDS), False)
    columns = np.stack([
        np.arange(keys),
        symbols.intern_many(pa.array([f"Story number {i} and what it is about" for i in range(keys)])),
        symbols.intern_many(pa.array([f"author{i % 9200}" for i in range(keys)])),
        np.zeros(keys, np.int64)])
    for at in range(0, keys, BATCH):
        some = columns[:, at:at + BATCH]
        view.fill(np.ascontiguousarray(some[:1]), Batch.of(some))
    return view, columns


def rate(what: str, run: Callable[[], int]) -> None:
    """Print the rate of a benchmark.  run: reads keys and returns their number."""
    start = time.perf_counter()
    answered = run()
    print(f"  {what:<44}{answered / (time.perf_counter() - start) / 1e3:>10,.0f} k/s", flush=True)


def read(path: str, keys: int, reads: int) -> None:
    """Run the benchmarks in the second process."""
    view = attach(path).view("stories")
    asked = np.random.default_rng(SEED).integers(0, keys, reads).tolist()
    rows = {key: view.lookup((key,)) for key in range(keys)}  # fills the dictionary and loads kernels
    view.lookup_many(pa.array(asked[:BATCH]))
    _, handle, _ = view.lookup_entry((asked[0],)) or ([], 0, 0)

    def single() -> int:
        for key in asked:
            view.lookup((key,))
        return reads

    def plain() -> int:
        for key in asked:
            rows[key]
        return reads

    def versions() -> int:
        for _ in asked:
            view.version(handle)
        return reads

    batches = [pa.array(np.random.default_rng(i).integers(0, keys, BATCH)) for i in range(max(reads // BATCH, 1))]

    def many(same_tick: bool) -> int:
        return sum(int((~view.lookup_many(batch, same_tick)[1]).sum()) for batch in batches)

    rate("one key, decoded row with two texts", single)
    rate("one key, is the cached row still good", versions)
    rate("one key, plain dictionary (floor)", plain)
    rate(f"{BATCH:,} keys at a time to Arrow", lambda: many(False))
    rate(f"{BATCH:,} keys, between two ticks", lambda: many(True))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--keys", type=int, default=100_000)
    parser.add_argument("--reads", type=int, default=200_000)
    parser.add_argument("--writes", action="store_true")
    parser.add_argument("--attach", help=argparse.SUPPRESS)  # this is the second process
    options = parser.parse_args()
    if options.attach:
        read(options.attach, options.keys, options.reads)
        return
    path = tempfile.mkdtemp(prefix="noria-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
    try:
        view, columns = publish(path, options.keys)
        print(f"{options.keys:,} keys, {view.memory() / options.keys:.0f} bytes each, seed {SEED}"
              f"{', the writer at work' if options.writes else ''}", flush=True)
        process = subprocess.Popen([sys.executable, __file__, "--attach", path, "--keys", str(options.keys),
                                    "--reads", str(options.reads)])
        if options.writes:
            write(view, columns, process)
        process.wait()
    finally:
        shutil.rmtree(path)


def write(view: WritableView, columns: np.ndarray, process: subprocess.Popen[bytes]) -> None:
    """Update the votes of 100 stories in each tick, until the reader has ended."""
    random = np.random.default_rng(SEED)
    weights = np.repeat(np.array([-1, 1], np.int64), 100)
    ticks = 0
    start = time.perf_counter()
    while process.poll() is None:
        some = random.choice(columns.shape[1], 100, replace=False)
        old = columns[:, some]
        columns[3, some] += 1
        ticks += 1
        view.begin_tick(ticks)
        view.apply(Batch(np.concatenate([old, columns[:, some]], axis=1), weights))
        view.end_tick(ticks)
    print(f"  {'rows changed meanwhile':<44}{200 * ticks / (time.perf_counter() - start) / 1e3:>10,.0f} k/s")


if __name__ == "__main__":
    main()
