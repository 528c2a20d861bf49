"""Base tables on disk: inserted rows, lookups and scanned rows a second, compared with RocksDB's own puts.

    python bench/storage.py [--seconds 2] [--dir DIR]

Each write is synced.  Rows are (id, group, value, text), with ids in random order.  `index` adds an index on group.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path
from time import perf_counter

import numpy as np
import pyarrow as pa
from rocksdict import Options, Rdict, WriteBatch, WriteOptions

from noria.core.batch import Codes
from noria.core.statements import Insert
from noria.core.types import BIGINT, DOUBLE, Column, IndexDef, Kind, SqlType, TableDef
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore

SEED = 7
GROUPS = 50_000
VARCHAR = SqlType(Kind.TEXT, length=40)
COLUMNS = (Column("id", BIGINT, False), Column("grp", BIGINT), Column("value", DOUBLE), Column("name", VARCHAR))
random = np.random.default_rng(SEED)


def rate(seconds: float, step: Callable[[], int]) -> float:
    """Call `step` until the time is over.  Return the sum of its results per second."""
    step()
    done, start = 0, perf_counter()
    while (now := perf_counter()) < start + seconds:
        done += step()
    return done / (now - start)


def floor(path: Path, rows: int, seconds: float) -> float:
    """Measure plain puts of the same sizes in synced batches, in rows per second."""
    db = Rdict(str(path), Options(raw_mode=True))
    synced, keys = WriteOptions(), count(1)
    synced.sync = True

    def step() -> int:
        batch = WriteBatch(raw_mode=True)
        for _ in range(rows):
            batch[(next(keys) * 0x9E3779B97F4A7C15 & (1 << 64) - 1).to_bytes(8, "big")] = b"v" * 46
        db.write(batch, synced)
        return rows

    result = rate(seconds, step)
    db.close()
    return result


class Bench:
    """A store with one table, and the ids for its rows."""

    def __init__(self, path: Path, index: bool):
        self.symbols = SymbolTable()
        self.store = RocksStore(str(path), self.symbols)
        indexes = (IndexDef("grp", (1,)),) if index else ()
        self.store.create_table(TableDef("t", COLUMNS, (0,), indexes))
        self.store.set_recipe(["t"], 1, 1)
        self.seq, self.ids = count(2), np.random.default_rng(SEED).permutation(20_000_000)
        self.used = 0

    def rows(self, n: int) -> list[tuple[int, int, float, str]]:
        ids = self.ids[self.used : self.used + n].tolist()
        self.used += n
        return [(i, i % GROUPS, i / 2, f"name {i % 1000}") for i in ids]

    def insert(self, n: int) -> Callable[[], int]:
        def step() -> int:
            return self.write(self.rows(n))
        return step

    def write(self, rows: object) -> int:
        results, _ = self.store.write([Insert("t", (0, 1, 2, 3), rows)], 1, next(self.seq))
        assert results[0].error is None, results[0].error
        return results[0].affected

    def arrow(self, n: int) -> Callable[[], int]:
        def step() -> int:
            columns = list(zip(*self.rows(n), strict=True))
            return self.write(pa.record_batch([pa.array(c) for c in columns], ["id", "grp", "value", "name"]))
        return step

    def group(self, n: int) -> Callable[[], int]:
        def step() -> int:
            statements = [Insert("t", (0, 1, 2, 3), [row]) for row in self.rows(n)]
            results, _ = self.store.write(statements, 1, next(self.seq))
            return sum(r.affected for r in results)
        return step

    def lookup(self, columns: tuple[int, ...], n: int) -> Callable[[], int]:
        def step() -> int:
            if columns == (0,):
                keys: Codes = random.choice(self.ids[: self.used], n)
            else:
                keys = random.integers(0, GROUPS, n)
            self.store.lookup("t", columns, np.asarray(keys, np.int64)[None, :])
            return n
        return step

    def scan(self) -> int:
        rows, after = 0, None
        while True:
            batch, after = self.store.scan("t", after, 50_000)
            rows += len(batch)
            if after is None:
                return rows


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--seconds", type=float, default=1.5, help="for each figure")
    options.add_argument("--dir", default=None, help="where the data goes (a disk, not tmpfs)")
    arguments = options.parse_args()
    seconds = arguments.seconds
    base = Path(tempfile.mkdtemp(prefix="noria-bench-", dir=arguments.dir))
    try:
        for rows in (1, 100, 10_000):
            print(f"floor: put, batches of {rows:>6}          {floor(base / f'f{rows}', rows, seconds):>12,.0f} rows/s")
        for index in (False, True):
            bench, what = Bench(base / f"s{index}", index), "key + index" if index else "key"
            steps = [("single", 1, bench.insert(1)), ("32 statements", 32, bench.group(32)),
                     ("rows of 100", 100, bench.insert(100)), ("rows of 10,000", 10_000, bench.insert(10_000)),
                     ("Arrow of 10,000", 10_000, bench.arrow(10_000))]
            for name, _, step in steps:
                print(f"insert, {what:<12} {name:<18} {rate(seconds, step):>12,.0f} rows/s")
            bench.store.engine.flush()
            ways = [((0,), "key")] + ([((1,), "index")] if index else [])
            for columns, by in ways:
                for n in (1, 1000):
                    figure = rate(seconds, bench.lookup(columns, n))
                    print(f"lookup by {by:<12} {n:>5} at a time      {figure:>12,.0f} keys/s")
            print(f"scan, {bench.used} rows                    {rate(seconds, bench.scan):>12,.0f} rows/s")
            bench.store.close()
    finally:
        shutil.rmtree(base)


if __name__ == "__main__":
    main()
