"""Updates per second of one worker's engine on the paper's figure 2, compared with plain dicts and a lower bound.

    python bench/engine.py [--stories N] [--seconds S]

There are 500,000 stories, all keys are present, and no disk is used.  A batch of votes is one tick: count, join,
project, view.  The same run measures the same pipeline in Python dicts, and numpy.bincount of the story ids.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from noria.core.batch import Batch
from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.engine.engine import Engine
from noria.dataflow.graph.eviction import evict
from noria.lowering.lower import Lowering
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory
from reference.memory_store import MemoryStore

SIZES = (1, 10, 100, 1_000, 10_000, 100_000)
GOALS = {10: 150_000, 100: 600_000, 1_000: 1_000_000, 100_000: 2_000_000}


def figure2(stories: int, *, text: bool, path: str | None) -> tuple[Engine, MemoryStore]:
    """Make the program of figure 2 with `stories` stories.  text: with a filter and a title column."""
    symbols = SymbolTable(path)
    store = MemoryStore(symbols)
    s = TableDef("stories", (Column("id", INT, False), Column("author", INT), Column("title", TEXT)), (0,), table_id=1)
    v = TableDef("votes", (Column("user", INT), Column("story_id", INT)), table_id=2)
    store.create_table(s)
    store.create_table(v)
    engine = Engine(store, symbols, ViewDirectory(path, symbols, 1))
    votes: mir.Mir = mir.Base(v)
    if text:
        votes = mir.Filter(votes, functions.call("ge", col(0, INT), const(0, INT)))
    count = mir.Aggregate(votes, (1,), (mir.agg("count_star", None, votes.fields),), ("vcount",))
    join = mir.Join(mir.Base(s), count, ((0, 0),))
    shown = (0, 1, 2, 4) if text else (0, 1, 4)
    plan = mir.Project(join, tuple(col(i, join.fields[i].type) for i in shown), tuple(f"c{i}" for i in shown))
    lowering = Lowering(engine)
    lowering.add_view(ViewDef("StoriesWithVC", plan, (0,), len(shown)))
    lowering.replan()
    engine.relayout()
    ids = np.arange(stories)
    titles = symbols.intern_many(pa.array([f"story number {i}" for i in ids]))
    write(engine, store, "stories", Batch.of(np.stack([ids, ids % 1000, titles])))
    return engine, store


def write(engine: Engine, store: MemoryStore, table: str, rows: Batch) -> None:
    store.put(table, rows)
    engine.tick({table: rows})


def rate(update: Callable[[Batch], object], stories: int, size: int, seconds: float) -> tuple[float, float]:
    """Return (rows per second, median seconds of a call) for batches of `size` votes on uniformly drawn stories."""
    rng = np.random.default_rng(size)
    times: list[float] = []
    end = time.perf_counter() + seconds
    while time.perf_counter() < end or len(times) < 3:
        rows = Batch.of(np.stack([np.zeros(size, np.int64), rng.integers(0, stories, size)]))
        start = time.perf_counter()
        update(rows)
        times.append(time.perf_counter() - start)
    return size * len(times) / sum(times), float(np.median(times))


def dicts(stories: int) -> Callable[[Batch], object]:
    """Make figure 2 in dicts and tuples: count, join, view.  Return its function for a batch of votes."""
    count = dict.fromkeys(range(stories), 0)
    story = {i: (i, i % 1000) for i in range(stories)}
    view = {i: (*story[i], 0) for i in range(stories)}

    def update(rows: Batch) -> None:
        for s in rows.columns[1].tolist():
            count[s] += 1
            view[s] = (*story[s], count[s])

    return update


def floor(stories: int) -> Callable[[Batch], object]:
    counts = np.zeros(stories, np.int64)

    def update(rows: Batch) -> None:
        np.add(counts, np.bincount(rows.columns[1], minlength=stories), out=counts)

    return update


def report(name: str, update: Callable[[Batch], object], stories: int, seconds: float, goals: bool = False) -> None:
    print(f"\n{name}")
    for size in SIZES:
        r, median = rate(update, stories, size, seconds)
        goal = f"   goal {GOALS[size]:>9,}/s" if goals and size in GOALS else ""
        goal = "   goal 60 us" if goals and size == 1 else goal
        print(f"  {size:>7,} a tick: {r:>12,.0f} rows/s   median call {median * 1e6:>9.1f} us{goal}", flush=True)


def main() -> None:
    args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    args.add_argument("--stories", type=int, default=500_000)
    args.add_argument("--seconds", type=float, default=1.5, help="for each batch size")
    a = args.parse_args()
    engine, _ = figure2(a.stories, text=False, path=None)
    engine.tick({"votes": Batch.of(np.stack([np.zeros(a.stories, np.int64), np.arange(a.stories)]))})
    everything = np.arange(a.stories)[None, :]
    start = time.perf_counter()
    engine.read("StoriesWithVC", everything)
    print(f"{a.stories:,} keys filled by one upquery in {time.perf_counter() - start:.2f} s")

    report("engine, populated", lambda b: engine.tick({"votes": b}), a.stories, a.seconds, goals=True)
    count = next(n for n in engine.graph.nodes if n.op.describe().startswith("aggregate"))
    evict(engine, count, (0,), everything)
    r, _ = rate(lambda b: engine.tick({"votes": b}), a.stories, 10_000, a.seconds)
    print(f"\nengine, fully evicted, 10,000 a tick: {r:,.0f} rows/s   goal 4,000,000/s")
    report("plain dicts", dicts(a.stories), a.stories, a.seconds)
    report("floor (numpy.bincount)", floor(a.stories), a.stories, a.seconds)

    del engine
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as path:
        engine, _ = figure2(a.stories, text=True, path=path)
        engine.tick({"votes": Batch.of(np.stack([np.zeros(a.stories, np.int64), np.arange(a.stories)]))})
        engine.read("StoriesWithVC", everything)
        report("engine with a filter, a text column, the view published in shared memory",
               lambda b: engine.tick({"votes": b}), a.stories, a.seconds)


if __name__ == "__main__":
    main()
