"""The savings of reuse beyond equal subplans: programs with and without it (§5.1).

    python bench/reuse.py [--rows 300] [--keys 100]

The programs are Lobsters, TPC-W and HotCRP (`programs/`, written from their public schemas), and joins with a common
begin.  Both ways have the same generated rows, and the same keys of each view are read.  For each program it prints the
number of nodes, states, readers and full states, and the bytes of states without readers and of all.  It also prints
the time of a tick of one row of each table.  For each view whose plan reuse changes, it prints the time of a read that
misses, in both ways.

With reuse, views that can be read through another one have no reader; reads of them look up the other one.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from noria.control.catalog.view_index import ViewIndex, reading
from noria.control.catalog.worker_view import columns_needed
from noria.core.batch import Batch
from noria.core.types import Kind, TableDef
from noria.core.values import encode
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.eviction import evict
from noria.dataflow.graph.nodes import Node
from noria.dataflow.oneshot.oneshot import OneShot
from noria.dataflow.ops.stateful.reader import Reader
from noria.lowering.lower import Lowering
from noria.plan.reuse.lookups.through import ReadThrough
from noria.plan.view import ViewDef
from noria.sql import commands
from noria.sql.parse import parse
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory
from reference.memory_store import MemoryStore

ROUNDS = 7
DAY = datetime(2026, 1, 1)
PROGRAMS = Path(__file__).parent / "programs"


class Text:
    """A parsed program: its tables and views, and the catalog against which its statements are parsed."""

    def __init__(self, text: str):
        self.tables: dict[str, TableDef] = {}
        self.views: dict[str, ViewDef] = {}
        for c in (c for line in text.splitlines() for c in parse(line, self)):  # each uses those before it
            if isinstance(c, commands.CreateTable):
                self.tables[c.table.name.lower()] = replace(c.table, table_id=len(self.tables) + 1)
            elif isinstance(c, commands.CreateView):
                self.views[c.view.name.lower()] = c.view

    def table(self, name: str) -> TableDef | None:
        return self.tables.get(name.lower())

    def view(self, name: str) -> ViewDef | None:
        return self.views.get(name.lower())


def rows_of(table: TableDef, rows: int) -> Iterator[tuple[object, ...]]:
    """Yield random rows of a table.

    Ids are drawn from `rows` numbers, other numbers from four.  Half of the optional ids, known by name, are NULL.
    """
    chance = random.Random(table.name)
    for i in range(rows):
        row: list[object] = []
        for at, c in enumerate(table.columns):
            if c.type.kind in (Kind.DATE, Kind.DATETIME):
                row.append(DAY + timedelta(days=i if at in table.primary_key else chance.randrange(rows)))
            elif at in table.primary_key and at == table.primary_key[0]:
                row.append(i if c.type.kind is Kind.INT else f"key {i}")
            elif c.type.kind is Kind.INT:
                optional = c.name in ("comment_id", "merged_story_id", "parent_comment_id") and chance.random() < 0.5
                many = c.name.lower().endswith("id") or c.name.endswith("_at") or "related" in c.name
                row.append(None if optional else chance.randrange(rows if many else 4))
            else:
                row.append(f"{c.name} {chance.randrange(rows)}")
        yield tuple(row)


def lent(program: Text) -> dict[str, tuple[ViewDef, ReadThrough]]:
    """Return the views without a reader, each with the view through which it is read.

    They are those of a program that creates the views in this order and reads none meanwhile.
    """
    held, found = ViewIndex(), dict[str, tuple[ViewDef, ReadThrough]]()
    views = {v.name: v for v in program.views.values() if not v.internal}
    for view in views.values():
        held.add(view.name, view)
    for view in views.values():
        lenders = sorted(n for n in held.others(view) if n not in found)
        if lenders:
            lender = min((views[n] for n in lenders), key=lambda v: (columns_needed(v), v.name))
            through = reading(lender, view)
            assert through is not None
            found[view.name] = lender, through
    last = {n: at[0].name for n, at in found.items()}
    for name, (lender, _) in found.items():  # the other view may itself be read through a third one
        while lender.name in last:
            lender = views[last[lender.name]]
        through = reading(lender, views[name])
        assert through is not None
        found[name] = lender, through
    return found


class Served:
    """A program in an engine with rows.  All its views are installed as one set."""

    def __init__(self, program: Text, rows: int, reuse: bool):
        self.symbols = SymbolTable(None)
        self.store = MemoryStore(self.symbols)
        self.engine = Engine(self.store, self.symbols, ViewDirectory(None, self.symbols, 1))
        for table in program.tables.values():
            self.store.create_table(table)
            codes = [tuple(encode(v, c.type, self.symbols) for v, c in zip(row, table.columns, strict=True))
                     for row in rows_of(table, rows)]
            self.store.put(table.name, Batch.from_rows(codes, len(table.columns), [1] * len(codes)))
        self.lowering = Lowering(self.engine, reuse=reuse)
        self.lent = lent(program) if reuse else {}
        for view in program.views.values():
            if view.name not in self.lent:
                self.lowering.add_view(view)
        self.lowering.replan()
        self.engine.relayout()
        self.engine.builds.all()

    def read(self, view: ViewDef, key: np.ndarray) -> None:
        lender, through = self.lent.get(view.name, (view, None))
        places = range(len(view.key)) if through is None else through.key
        self.engine.read(lender.name, np.ascontiguousarray(key[list(places)] if view.key else key))

    def keys(self, view: ViewDef, most: int) -> np.ndarray:
        """Return up to `most` keys of a view that have rows."""
        _, top, twins, _ = self.lowering.one_shot(view)
        shot = OneShot(self.engine, twins, 10**7)
        rows = shot.all_rows(top)
        keys = np.unique(rows.columns[list(view.key)], axis=1) if view.key else np.zeros((0, 1), np.int64)
        return np.ascontiguousarray(keys[:, np.random.default_rng(1).permutation(keys.shape[1])[:most]])

    def forget(self) -> None:
        """Evict all keys of all states."""
        for node in reversed(self.engine.graph.nodes):
            if node.op.stateful and node.state is not None and not node.full:
                for cols in node.op.presence(node):
                    if cols and (keys := node.stored.present(cols)).shape[1]:
                        evict(self.engine, node, cols, np.ascontiguousarray(keys))

    def states(self) -> list[Node]:
        return [n for n in self.engine.graph.nodes if n.op.stateful and n.state is not None]


@dataclass(frozen=True)
class Figures:
    nodes: int
    states: int
    readers: int
    full: int
    inner_bytes: int
    all_bytes: int

    def __str__(self) -> str:
        return (f"{self.nodes:6} {self.states:7} {self.readers:8} {self.full:5} {self.inner_bytes:12,} "
                f"{self.all_bytes:12,}")


def figures(served: Served) -> Figures:
    states = served.states()
    readers = [n for n in states if isinstance(n.op, Reader)]
    inner = [n for n in states if n not in readers]
    return Figures(len(served.engine.graph.nodes), len(inner), len(readers), sum(n.full for n in states),
                   sum(n.stored.memory() for n in inner), sum(n.stored.memory() for n in states))


def misses_us(served: Served, view: ViewDef, keys: np.ndarray) -> np.ndarray:
    """Empty all states, and read one key after the other.  Return the time of each, in µs."""
    served.forget()
    took = np.empty(keys.shape[1])
    for i in range(keys.shape[1]):
        key = np.ascontiguousarray(keys[:, i:i + 1])
        start = time.perf_counter_ns()
        served.engine.read(view.name, key)
        took[i] = time.perf_counter_ns() - start
    return took / 1000


def ticks_us(served: Served, tables: Sequence[str]) -> float:
    """Remove and insert the last row of each table.  Return the sum of the tables' median ticks, in µs."""
    total = 0.0
    for name in tables:
        everything, _ = served.store.scan(name, None, 10**9)
        row = everything.take(np.array([len(everything) - 1]))
        took = []
        for delta in (row.negated(), row) * (4 * ROUNDS):
            served.store.put(name, delta)
            start = time.perf_counter_ns()
            served.engine.tick({name: delta})
            took.append(time.perf_counter_ns() - start)
        total += statistics.median(took) / 1000
    return total


def compared_us(plain: Served, shared: Served, view: ViewDef, keys: np.ndarray) -> list[float]:
    """Measure misses without and with reuse, in turns.  Return the median over all keys of the best time of a key."""
    rounds = [[misses_us(s, view, keys) for s in (plain, shared)] for _ in range(ROUNDS)]
    return [statistics.median(np.minimum.reduce(times)) for times in zip(*rounds, strict=True)]


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--rows", type=int, default=300)
    options.add_argument("--keys", type=int, default=100)
    asked = options.parse_args()
    for path in sorted(PROGRAMS.glob("*.sql")):
        program = Text(path.read_text())
        external = [v for v in program.views.values() if not v.internal]
        print(f"{path.stem}: {len(program.tables)} tables, {len(external)} queries")
        print("                 nodes  states  readers  full  bytes, inner  bytes, all")
        plain, shared = (Served(program, asked.rows, reuse) for reuse in (False, True))
        keys = {v.name: plain.keys(v, asked.keys) for v in external}
        for name, served in (("without", plain), ("with", shared)):
            for v in external:
                for i in range(keys[v.name].shape[1]):
                    served.read(v, np.ascontiguousarray(keys[v.name][:, i:i + 1]))
            print(f"  {name:12} {figures(served)}")
        tables = [t.name for t in program.tables.values()]
        both = [[ticks_us(s, tables) for s in (plain, shared)] for _ in range(ROUNDS)]
        before, after = (min(took) for took in zip(*both, strict=True))
        print(f"  a tick of one row of each table: {before:.0f} µs → {after:.0f} µs  ({after / before:.2f})")
        ratios = []
        for v in external:
            if not keys[v.name].shape[1] or not v.key or v.name in shared.lent:
                continue
            if shared.lowering.planned(v.name) != plain.lowering.planned(v.name):
                before, after = compared_us(plain, shared, v, keys[v.name])
                ratios.append((after / before, v.name, before, after))
        ratios.sort()
        print(f"  misses of the {len(ratios)} views that share so")
        for ratio, name, before, after in ratios:
            print(f"    {name:24} {before:7.0f} µs → {after:7.0f} µs  ({ratio:.2f})")
        print(f"  {len(shared.lent)} views have no reader")
        for name, (lender, through) in shared.lent.items():
            print(f"    {name:24} in {lender.name}: {through.show(lender)}")


if __name__ == "__main__":
    main()
