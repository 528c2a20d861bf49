"""Loads every kernel before the first request needs it. Call `kernels`.

The first call of a kernel loads its compiled code (`noria.kernels`), which would delay a first read. `kernels`
runs a small program through a real store, graph and views, and reads it as other processes do. It answers
one-shots several times, since Python specialises functions after some calls.
"""

from __future__ import annotations

import functools
import gc
import tempfile
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from noria.core.expressions import functions
from noria.core.expressions.expr import col, const
from noria.core.keys import shard_of
from noria.core.limits import ONE_SHOT_ROWS
from noria.core.statements import Delete, Insert, Update
from noria.core.types import DOUBLE, INT, TEXT, Column, TableDef, decimal
from noria.dataflow.engine import memory_limit
from noria.dataflow.messages import packets
from noria.dataflow.worker.worker import Worker
from noria.kernels import making
from noria.lowering.lower import Lowering
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.runtime.transport.packet_codec import PACKETS
from noria.state.rows import slices
from noria.state.symbols.symbols import SymbolTable
from noria.storage.store import RocksStore
from noria.views import write_kernels
from noria.views.reader import attach
from noria.views.writer import ViewDirectory

LEFT = TableDef("l", (Column("id", INT, False), Column("t", TEXT), Column("d", DOUBLE), Column("m", decimal(9, 2))),
                (0,), table_id=1)
RIGHT = TableDef("r", (Column("l_id", INT), Column("n", INT)), table_id=2)
MANY = 4_000  # more than are built at once, and than a view without a key has in one block
GC_OBJECTS = 5_000  # more between two collections than a statement makes: with fewer a tenth of planning is collecting
FIRST_REQUEST, ROUNDS = 20, 4  # a function is specialised after some calls
BULK = 64  # rows: more than the kernels' small-batch limits


@functools.cache
def kernels(place: str | None = None) -> None:
    """Run writes, upqueries, evictions and full states of every operator, in a directory of its own (under
    `place`).

    Missing kernels are compiled first, once for an installation. It runs once in a process: a second `gc.freeze`
    would keep all objects of that moment for good, including closed databases and their maps.
    """
    making.ensure()
    with tempfile.TemporaryDirectory(dir=place) as path:
        views = Path(path) / "views"
        views.mkdir()
        symbols = SymbolTable(str(views))
        store = RocksStore(str(Path(path) / "base"), symbols)
        worker = Worker(store, symbols, ViewDirectory(str(views), symbols, 1), Lowering)
        try:
            for seq, body in enumerate(_program(), 1):
                worker.step([packets.Envelope(1, -1, seq, body)])
            for seq, body in enumerate(_background(), 1000):
                worker.step([packets.Envelope(1, -1, seq, body)])
            worker.idle(1000)
            for texts in (pa.string(), pa.large_string()):
                symbols.intern_many(pa.array(["of no row", None], texts))
            memory_limit.sweep(worker.engine)  # strings that no state holds
            _read(str(views))
            write_kernels.warm_growth()
            shard_of([np.zeros(1, np.int64), symbols.intern_many(pa.array([""]))], [INT, TEXT], 2, symbols)
            slices.part_of(np.zeros((1, 1), np.int64), 2)  # of a delta, while a state is built from another one
            for seq, body in enumerate(one_shots(), 2000):
                worker.step([packets.Envelope(1, -1, seq, PACKETS.decode(PACKETS.encode(body)))])
            worker.step([packets.Envelope(1, -1, 0, packets.Evict(0, None))])
        finally:
            worker.close()
    gc.collect()
    gc.freeze()  # objects of this moment stay: no collection scans them again
    gc.set_threshold(GC_OBJECTS, 10, 10)


def _program() -> Iterator[packets.Packet]:
    yield packets.Migrate((packets.CreateTable(LEFT), packets.CreateTable(RIGHT)))
    yield packets.Migrate(tuple(packets.AddView(v) for v in _views()))
    for rows in (1, BULK):
        left, right = _left(rows, 1000 if rows == 1 else 0), [(i, i % 3) for i in range(rows)]
        yield packets.Write((Insert("l", (0, 1, 2, 3), left), Insert("r", (0, 1), right)))
        yield packets.Read(0, "joined", tuple((i,) for i in range(rows)))
        yield packets.Read(0, "extremes", (("t0",),))
        yield packets.Read(0, "window", ((1,),))
        yield packets.Read(0, "top", ((1,),))
    batch = pa.RecordBatch.from_pydict({"l_id": list(range(BULK)), "n": [None] * BULK})
    yield packets.Write((Insert("r", (0, 1), batch),))
    where = functions.call("lt", col(0, INT), const(9, INT))
    yield packets.Write((Update("l", ((2, const(2.5, DOUBLE)),), where), Delete("r", where)))
    yield packets.Inspect(0, "stats")
    yield packets.Evict(0, 1000)


def _left(rows: int, first: int) -> list[tuple[object, ...]]:
    return [(first + i, f"t{i % 5}", 1.5, Decimal("2.25")) for i in range(rows)]


def _views() -> list[ViewDef]:
    left, right = mir.Base(LEFT), mir.Base(RIGHT)
    some = mir.Filter(right, functions.call("ge", col(0, INT), const(0, INT)))
    count = mir.Aggregate(some, (0,), (mir.agg("count_star", None, right.fields), mir.agg("sum", 1, right.fields)),
                          ("n", "s"))
    joined = mir.Join(left, count, ((0, 0),))
    outer = mir.Join(left, right, ((0, 0),), outer=True)
    extremes = mir.Aggregate(left, (1,), tuple(mir.agg(f, c, left.fields) for f in ("min", "max") for c in (1, 2)),
                             ("a", "b", "c", "d"))
    total = mir.Aggregate(right, (), (mir.agg("avg", 1, right.fields),), ("x",))
    sums = tuple(mir.over(f, 3, left.fields) for f in ("sum", "min"))
    window = mir.Window(left, (0,), ((2, True),), sums, ("s", "m"))
    top = mir.TopK(left, (0,), ((2, True),), 1)
    return [ViewDef("joined", joined, (0,), joined.width), ViewDef("outer", outer, (1,), outer.width),
            ViewDef("extremes", extremes, (0,), extremes.width), ViewDef("total", total, (), 1),
            ViewDef("window", window, (0,), window.width), ViewDef("top", top, (0,), top.width)]


def _background() -> Iterator[packets.Packet]:
    """Build a first state in slices while its table is written."""
    yield packets.Write((Insert("l", (0, 1, 2, 3), _left(MANY, 2 * MANY)),))
    yield packets.Migrate((packets.AddView(_copy()),))
    for i in range(40):
        yield packets.Write((Insert("l", (0, 1, 2, 3), _left(1, 10 * MANY + i)),))


def _copy() -> ViewDef:
    """A view without a key: a full state from a table, and the reader's full state from that one."""
    some = mir.Aggregate(mir.Base(LEFT), (0, 1), (mir.agg("count_star", None, mir.Base(LEFT).fields),), ("n",))
    return ViewDef("copy", some, (), some.width)


def one_shots() -> Iterator[packets.Query]:
    """One-shots: rows by a key, a group, a join, groups of a LEFT JOIN, the first rows of a join."""
    left, right = mir.Base(LEFT), mir.Base(RIGHT)
    some = mir.Project(left, (col(1, TEXT), col(0, INT, False), col(3, decimal(9, 2))), ("t", "id", "m"))
    count = mir.Aggregate(right, (0,), (mir.agg("count_star", None, right.fields),), ("n",))
    join = mir.Join(right, left, ((0, 0),))
    outer = mir.Join(left, right, ((0, 0),), outer=True)
    groups = mir.Aggregate(outer, (0, 1), (mir.agg("count", 5, outer.fields),), ("n",))
    best = mir.TopK(groups, (0,), ((2, True), (0, False)), 3)
    first = mir.TopK(mir.Join(left, right, ((0, 0),)), (), ((0, False),), 3)
    for n in range(FIRST_REQUEST, FIRST_REQUEST + ROUNDS):
        for plan, key in ((some, (1,)), (count, (0,)), (join, (0,)), (best, (0,)), (first, ())):
            view = ViewDef("select", plan, key, plan.width, adhoc=True)
            yield packets.Query(n, view, ((n,) * len(key),), rows=ONE_SHOT_ROWS, chunked=True)


def _read(views: str) -> None:
    """Read as other processes do: single and bulk lookups, hits and misses."""
    attached = attach(views)
    view = attached.view("joined")
    for key in (1, 10_000):
        view.lookup((key,))
    view.lookup_many([(i,) for i in range(BULK)])
    entry = view.lookup_entry((1,))
    if entry is not None:
        _, handle, _ = entry
        view.version(handle)
        view.stamp(handle)
    attached.view("extremes").lookup(("t0",))
    attached.view("extremes").lookup_many([("t0",)])
    attached.view("total").lookup(())
    attached.view("copy").lookup(())

