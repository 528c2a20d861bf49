"""Rows per second of each operator by itself, full and partial, compared with numpy.

    python bench/operators.py [--rows N] [--seconds S] [--only WORD] [--profile]

The table has `--rows` rows, and all keys are present.  A batch is inserted in one tick and deleted in the next, so that
states keep their size.  Only the operator's own part of a tick is timed.  The floor is numpy's rate for similar work on
the same batch without any state.  No operator can be faster, and none should be much slower.

With --profile, it counts instead the calls of Python functions in two ticks of the program, by the size of the batch.
They must not grow with the rows.
"""

from __future__ import annotations

import argparse
import cProfile
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from noria.core.batch import Batch
from noria.core.errors import SqlError
from noria.dataflow.engine import engine as engine_module
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.nodes import Node
from noria.lowering.lower import Lowering
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory
from reference.memory_store import MemoryStore
from sql.catalogs import DictCatalog

SIZES = (1, 10, 1_000, 100_000)
SCHEMA = ("CREATE TABLE t (id INT, k INT, x INT, d DOUBLE)", "CREATE TABLE u (k INT PRIMARY KEY, y INT)")
Floor = Callable[[Batch, np.ndarray], object]


@dataclass(frozen=True)
class Case:
    """An operator to measure.

    text: a SELECT whose `{key} = ?` makes it partial (k) or full (k + 0).  does: how the operator's description begins.
    """

    name: str
    does: str
    text: str
    floor: Floor


def _filter(b: Batch, groups: np.ndarray) -> object:
    return b.columns[:, b.columns[2] > 50]


def _project(b: Batch, groups: np.ndarray) -> object:
    return b.columns[1], b.columns[2] + 1


def _join(b: Batch, groups: np.ndarray) -> object:
    at = np.searchsorted(groups, b.columns[1])
    return np.concatenate([b.columns, groups[np.minimum(at, len(groups) - 1)][None, :]])


def _count(b: Batch, groups: np.ndarray) -> object:
    return np.bincount(b.columns[1], minlength=len(groups)), np.bincount(b.columns[1], b.columns[2], len(groups))


def _extreme(b: Batch, groups: np.ndarray) -> object:
    out = groups.copy()
    np.maximum.at(out, b.columns[1], b.columns[2])
    return out


def _distinct(b: Batch, groups: np.ndarray) -> object:
    return np.unique(b.columns[1:3], axis=1)


def _sort(b: Batch, groups: np.ndarray) -> object:
    return b.columns[:, np.lexsort((b.columns[2], b.columns[1]))]


def _union(b: Batch, groups: np.ndarray) -> object:
    return np.concatenate([b.columns, b.columns], axis=1)


CASES = (
    Case("filter", "filter", "SELECT id, x FROM t WHERE x > 50 AND {key} = ?", _filter),
    Case("project", "project", "SELECT id, x + 1, x * 2 FROM t WHERE {key} = ?", _project),
    Case("join", "join", "SELECT t.id, u.y FROM t JOIN u ON u.k = t.k WHERE {t.key} = ?", _join),
    Case("left join", "join", "SELECT t.id, u.y FROM t LEFT JOIN u ON u.k = t.k WHERE {t.key} = ?", _join),
    Case("count, sum", "aggregate", "SELECT k, COUNT(*), SUM(x) FROM t WHERE {key} = ? GROUP BY k", _count),
    Case("avg of doubles", "aggregate", "SELECT k, AVG(d) FROM t WHERE {key} = ? GROUP BY k", _count),
    Case("max", "aggregate", "SELECT k, MAX(x) FROM t WHERE {key} = ? GROUP BY k", _extreme),
    Case("count distinct", "aggregate", "SELECT k, COUNT(DISTINCT x) FROM t WHERE {key} = ? GROUP BY k", _distinct),
    Case("distinct", "distinct", "SELECT DISTINCT k, x FROM t WHERE {key} = ?", _distinct),
    Case("union all", "union", "SELECT q.x FROM (SELECT k, x FROM t UNION ALL SELECT k, y FROM u) q WHERE q.{key} = ?",
         _union),
    Case("top 3", "top", "SELECT q.id FROM (SELECT id, k, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x, id) AS n FROM"
         " t) q WHERE q.n <= 3 AND q.{key} = ?", _sort),
    Case("semi-join", "join", "SELECT id FROM t WHERE {key} = ? AND k IN (SELECT k FROM u)", _join),
    Case("anti-join", "join", "SELECT id FROM t WHERE {key} = ? AND NOT EXISTS (SELECT 1 FROM u WHERE u.k = t.k)",
         _join),
    Case("row number", "window", "SELECT id, ROW_NUMBER() OVER (PARTITION BY k ORDER BY x, id) FROM t WHERE {key} = ?",
         _sort),
    Case("group_concat", "group_concat", "SELECT k, GROUP_CONCAT(x ORDER BY x) FROM t WHERE {key} = ? GROUP BY k",
         _sort),
    Case("reader", "reader", "SELECT id, k, x FROM t WHERE {key} = ?", _sort),
)


class Bench:
    """One case in one mode: a program with its rows, all keys of which were read once."""

    def __init__(self, case: Case, full: bool, rows: int):
        text = case.text.replace("{key}", "k + 0" if full else "k").replace("{t.key}", "t.k + 0" if full else "t.k")
        catalog = DictCatalog(*SCHEMA)
        view = catalog.view_of(text)
        symbols = SymbolTable(None)
        self.store = MemoryStore(symbols)
        for name in ("t", "u"):
            table = catalog.table(name)
            assert table is not None
            self.store.create_table(table)
        self.engine = Engine(self.store, symbols, ViewDirectory(None, symbols, 1))
        self.groups = np.arange(max(rows // 10, 1))
        self._rng = np.random.default_rng(1)
        self.write("u", Batch.of(np.stack([self.groups, self.groups % 7])))
        self.write("t", self.batch(rows, 0))
        lowering = Lowering(self.engine)
        lowering.add_view(view)
        lowering.replan()
        self.engine.relayout()
        name = next(iter(self.engine.readers))
        self.engine.read(name, self.groups[None, :])
        nodes = [n for n in self.engine.graph.nodes if n.op.describe().startswith(case.does)]
        self.nodes: list[Node] = nodes or [n for n in self.engine.graph.nodes if n.op.stateful][:1]

    def batch(self, size: int, first: int) -> Batch:
        k, x = self._rng.integers(0, len(self.groups), size), self._rng.integers(0, 100, size)
        return Batch.of(np.stack([np.arange(first, first + size), k, x, x.astype(np.float64).view(np.int64)]))

    def write(self, table: str, rows: Batch) -> None:
        self.store.put(table, rows)
        self.engine.tick({table: rows})

    def rate(self, size: int, seconds: float) -> float:
        """Return rows per second of the operator alone, without the first batch, which may compile kernels."""
        self._there_and_back(size, 10**6)
        done, start, before, first = 0, time.perf_counter(), self._spent(), 10**7
        while time.perf_counter() < start + seconds or done < 4 * size:
            self._there_and_back(size, first)
            done, first = done + 2 * size, first + size
        return done / max((self._spent() - before) / 1e9, 1e-9)

    def _there_and_back(self, size: int, first: int) -> None:
        rows = self.batch(size, first)
        self.write("t", rows)
        self.write("t", Batch(rows.columns, -rows.weights))

    def _spent(self) -> int:
        return sum(n.stats.timed_ns for n in self.nodes)

    def calls(self, size: int) -> int:
        """Count the calls of Python functions, including builtin ones, in a tick that inserts and one that deletes."""
        self._there_and_back(size, 10**6)
        rows, profile = self.batch(size, 10**7), cProfile.Profile()
        profile.runcall(lambda: (self.write("t", rows), self.write("t", Batch(rows.columns, -rows.weights))))
        return sum(entry.callcount for entry in profile.getstats())

    def floor(self, floor: Floor, size: int, seconds: float) -> float:
        rows, done, spent = self.batch(size, 0), 0, 0.0
        while spent < seconds / 4 or done < 4 * size:
            start = time.perf_counter()
            floor(rows, self.groups)
            spent += time.perf_counter() - start
            done += size
        return done / spent


def profiled(cases: Sequence[Case], rows: int) -> None:
    print(f"{'calls in two ticks':24}" + "".join(f"{size:>12,} rows" for size in SIZES))
    for case in cases:
        bench = Bench(case, False, rows)
        print(f"{case.name:24}" + "".join(f"{bench.calls(size):>17,}" for size in SIZES), flush=True)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--rows", type=int, default=200_000)
    args.add_argument("--seconds", type=float, default=1.0, help="for each batch size")
    args.add_argument("--only", default="", help="operators whose name has this in it")
    args.add_argument("--profile", action="store_true", help="count calls of Python instead")
    a = args.parse_args()
    if a.profile:
        profiled([case for case in CASES if a.only in case.name], a.rows)
        return
    engine_module.TIMED_TICKS = 1
    print(f"{'rows/s':24}" + "".join(f"{size:>12,} a tick" for size in SIZES))
    for case in CASES:
        if a.only not in case.name:
            continue
        floors: list[float] = []
        for full in (False, True):
            try:
                bench = Bench(case, full, a.rows)
            except SqlError as e:
                print(f"{case.name:24}not maintained: {e.message[:80]}")
                break
            bench.engine.clock = time.perf_counter_ns
            kept = "full" if all(n.full for n in bench.nodes if n.op.stateful) and full else "partial"
            rates = [bench.rate(size, a.seconds) for size in SIZES]
            floors = floors or [bench.floor(case.floor, size, a.seconds) for size in SIZES]
            print(f"{case.name + ', ' + kept:24}" + "".join(f"{r:>19,.0f}" for r in rates), flush=True)
        if floors:
            print(f"{'  numpy, once':24}" + "".join(f"{r:>19,.0f}" for r in floors), flush=True)


if __name__ == "__main__":
    main()
