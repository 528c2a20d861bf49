"""Eviction by bytes: views first, least recently read keys first, internal keys only when nothing needs them."""

from __future__ import annotations

import gc
import weakref

import numpy as np

from dataflow.engine_rig import Rig
from noria.core.batch import Batch
from noria.core.types import INT, TEXT, Column, TableDef
from noria.dataflow.engine.memory_limit import essential, evict_bytes, memory
from noria.dataflow.graph.graph import ancestors
from noria.dataflow.inspect.validate import validate
from noria.dataflow.worker.worker import Worker
from noria.plan import mir
from noria.plan.view import ViewDef
from noria.state.memory.mapped import GrowingMemory, leaving
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory

STORIES = TableDef("stories", (Column("id", INT, False), Column("author", INT)), (0,), table_id=1)
VOTES = TableDef("votes", (Column("user", INT), Column("story_id", INT)), table_id=2)


def figure2() -> ViewDef:
    votes = mir.Base(VOTES)
    count = mir.Aggregate(votes, (1,), (mir.agg("count_star", None, votes.fields),), ("vcount",))
    join = mir.Join(mir.Base(STORIES), count, ((0, 0),))
    return ViewDef("StoriesWithVC", join, (0,), 4)


def rig(stories: int) -> Rig:
    made = Rig([STORIES, VOTES], [figure2()], lambda s: ViewDirectory(None, s, 1), SymbolTable(None))
    made.write([("stories", (i, i % 7), 1) for i in range(stories)])
    made.write([("votes", (u, i), 1) for i in range(stories) for u in range(2)])
    return made


def present(r: Rig, describes: str) -> set[int]:
    node = next(n for n in r.engine.graph.nodes if n.op.describe().startswith(describes))
    return set(node.stored.present(node.indexes[0])[0].tolist())


def test_cold_view_keys_are_evicted_first_and_the_keys_that_they_needed_next() -> None:
    r = rig(400)
    r.engine.tick_number = 10
    r.engine.read("StoriesWithVC", np.arange(400)[None, :])
    r.engine.tick_number = 20
    hot = np.arange(0, 400, 40)
    r.engine.read("StoriesWithVC", hot[None, :])
    view = next(n for n in r.engine.graph.nodes if n.op.describe().startswith("reader"))
    view.op.fetch(r.engine, view, (0,), hot[None, :], None)
    before = memory(r.engine)
    evict_bytes(r.engine, before // 3)
    assert memory(r.engine) < before
    left = present(r, "reader")
    assert left <= present(r, "aggregate") and left <= present(r, "table stories")
    validate(r.engine)


def test_all_partial_state_can_be_evicted_and_is_filled_again_by_upqueries() -> None:
    r = rig(100)
    r.engine.read("StoriesWithVC", np.arange(100)[None, :])
    evict_bytes(r.engine, 2**62)
    assert not present(r, "reader") and not present(r, "aggregate") and not present(r, "table stories")
    rows, _ = r.engine.read("StoriesWithVC", np.array([[5, 99]]))
    assert sorted(rows.rows()) == [(5, 5, 5, 2), (99, 1, 99, 2)]
    validate(r.engine)


def test_a_sweep_over_ten_times_the_limit_stays_below_it() -> None:
    r = rig(2000)
    symbols = r.symbols.memory()
    r.engine.read("StoriesWithVC", np.arange(200)[None, :])
    limit = memory(r.engine)
    for start in range(0, 2000, 50):
        r.engine.read("StoriesWithVC", np.arange(start, start + 50)[None, :])
        r.write([("votes", (9, start), 1)])
        used = memory(r.engine)
        if used > limit:
            evict_bytes(r.engine, used - limit)
        assert memory(r.engine) <= limit, (start, memory(r.engine), limit, symbols)
    validate(r.engine)


def test_full_states_over_the_limit_leave_a_share_to_partial_states() -> None:
    made = Rig([STORIES, VOTES], [figure2(), ViewDef("All", mir.Base(VOTES), (), 2)],
               lambda s: ViewDirectory(None, s, 1), SymbolTable(None))
    made.write([("stories", (i, i % 7), 1) for i in range(4000)])
    made.write([("votes", (u, i), 1) for i in range(4000) for u in range(5)])
    made.engine.read("StoriesWithVC", np.arange(4000)[None, :])
    worker = Worker(made.store, made.symbols, made.engine.views, lambda engine: made.lowering,
                    memory_limit=essential(made.engine))
    worker.engine = made.engine
    before = memory(made.engine)
    worker.hold_limit()
    assert memory(made.engine) < before and 0 < len(present(made, "reader StoriesWithVC")) < 4000
    validate(made.engine)


def test_strings_of_a_sweep_over_ten_times_the_limit_are_freed_with_their_keys() -> None:
    people = TableDef("people", (Column("name", TEXT, False), Column("town", TEXT)), (0,), table_id=1)
    view = ViewDef("ByName", mir.Base(people), (0,), 2)
    store_rows = 30_000
    symbols = SymbolTable(None)
    r = Rig([people], [], lambda s: ViewDirectory(None, s, 1), symbols)

    texts = {f"somebody with a long name {i}": f"a town of which there are few {i // 3}" for i in range(store_rows)}

    def lookup(table: str, columns: tuple[int, ...], keys: np.ndarray, wanted: object = None, most: int = 0
               ) -> tuple[Batch, np.ndarray]:
        names = [symbols.text(int(k)) for k in keys[0]]
        rows = [(symbols.intern(n), symbols.intern(texts[n])) for n in names if n in texts]
        found = np.array([i for i, n in enumerate(names) if n in texts], np.int64)
        return Batch.from_rows(rows, 2), found

    r.store.lookup = lookup
    r.add_view(view)
    limit = 2**20
    worker = Worker(r.store, symbols, r.engine.views, lambda engine: r.lowering, memory_limit=limit)
    worker.engine = r.engine
    most = 0
    names = list(texts)
    for start in range(0, store_rows, 500):
        keys = np.array([[symbols.intern(n) for n in names[start:start + 500]]], np.int64)
        rows, _ = r.engine.read("ByName", keys)
        assert len(rows) == 500
        worker.hold_limit()
        most = max(most, memory(r.engine))
    assert symbols.sweeps > 5 and most < 2.5 * limit
    shown = symbols.texts(rows.columns[1]).to_pylist()
    assert shown == [texts[n] for n in symbols.texts(rows.columns[0]).to_pylist()]


def test_memory_of_a_dropped_view_is_freed_between_packets_and_counts_until_then() -> None:
    """850 MB of a dropped view were freed in one call of 0.7 s, in which no client was served."""
    r = rig(10)
    worker = Worker(r.store, r.symbols, r.engine.views, lambda engine: r.lowering)
    worker.idle(1)
    empty = worker.stats()["memory"]
    dropped = GrowingMemory(None, 2**30, 64 * 2**20)
    del dropped
    sizes = []
    while worker.idle(1)[1]:
        sizes.append(worker.stats()["memory"] - empty)
    assert sizes == [n * 2**20 for n in range(56, 0, -8)]
    assert worker.stats()["memory"] == empty
    leaving.finish()


def test_states_of_a_dropped_view_are_freed_without_a_collection() -> None:
    """Its maps stayed until the collector found the cycle of nodes of the graph and their users."""
    r = rig(3)
    r.engine.read("StoriesWithVC", np.array([[1]]))
    own = [n for n in ancestors(r.engine.readers["StoriesWithVC"]) if n.parents]
    dropped = [weakref.ref(thing) for n in own for thing in (n, n.state) if thing is not None]
    assert len(dropped) == 5  # the count, the join that keeps nothing, the reader
    del own
    gc.disable()
    try:
        r.drop_view("StoriesWithVC")
        assert not any(thing() for thing in dropped)
    finally:
        gc.enable()
