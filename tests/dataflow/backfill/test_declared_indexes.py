"""Indexes that a table declares: built in slices between writes, awaited, dropped, undone, continued after a crash, and
shared with views. In the end the check of the store has no findings."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dataflow.building import ROWS, WAITING, Building
from dataflow.declared_indexes import BY_A, alter, await_indexes, check_store, families
from noria.core.errors import SqlError
from noria.core.types import INT, Column, IndexDef
from noria.dataflow.messages import packets


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Building]:
    made = Building.filled(tmp_path / "base")
    yield made
    made.worker.close()


def test_built_between_writes(bench: Building, tmp_path: Path) -> None:
    rng = random.Random(3)
    assert alter(bench, BY_A).error is None
    await_indexes(bench)
    writes = 0
    while not bench.replies:
        id = rng.randrange(ROWS * 2)
        bench.put((id, id % 7)) if id not in bench.rows else bench.delete_below(min(bench.rows) + rng.randrange(20))
        writes += 1
        if writes == 3:
            assert bench.building()[0]["what"] == "index of table t by a" and bench.building()[0]["views"] == []
        assert writes < 5_000
    assert bench.replies == [packets.Done(WAITING)] and writes > 5
    assert [(i.columns, i.name) for i in bench.store.table("t").indexes] == [((1,), "by_a")]
    assert bench.define("CREATE VIEW by_a AS SELECT id FROM t WHERE a = ?").filling == (), "the index exists"
    assert bench.all_of("by_a", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    bench.change(packets.Migrate((packets.DropView("by_a"),), ()))
    assert bench.store.table("t").indexes, "it is declared: it stays"
    check_store(bench, tmp_path)


def test_dropped_while_it_is_built(bench: Building, tmp_path: Path) -> None:
    alter(bench, BY_A)
    bench.put((ROWS, 1))
    assert bench.building() and families(bench)
    alter(bench)
    assert bench.building() == [] and not families(bench)
    check_store(bench, tmp_path)


def test_dropped_while_a_view_needs_it(bench: Building, tmp_path: Path) -> None:
    """The build continues for the view; and the other way round."""
    alter(bench, BY_A)
    bench.idle()
    bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?")
    assert alter(bench).error is None
    assert bench.all_of("w", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    assert [i.name for i in bench.store.table("t").indexes] == [""]
    alter(bench, replace(BY_A, name="again"))
    assert [i.name for i in bench.store.table("t").indexes] == ["again"] and bench.building() == []
    check_store(bench, tmp_path)


def test_one_build_for_a_view_and_for_the_table(bench: Building, tmp_path: Path) -> None:
    """Either may need it first; when one no longer needs it, the other still has it."""
    alter(bench, BY_A)
    bench.put((ROWS, 1))
    assert bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?").filling == ("w",)
    assert len(bench.building()) == 1 and bench.building()[0]["views"] == ["w"]
    bench.change(packets.Migrate((packets.DropView("w"),), ()))
    assert len(bench.building()) == 1, "the table still declares it"
    bench.catalog.views.pop("w")
    bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?")
    alter(bench)
    assert len(bench.building()) == 1, "the view still needs it"
    bench.idle()
    assert bench.all_of("w", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    assert [i.name for i in bench.store.table("t").indexes] == [""]
    check_store(bench, tmp_path)


def test_declared_while_a_view_has_it_built(bench: Building, tmp_path: Path) -> None:
    bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?")
    bench.put((ROWS, 1))
    alter(bench, BY_A)
    await_indexes(bench)
    assert bench.replies == [] and len(bench.building()) == 1
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)]
    assert [i.name for i in bench.store.table("t").indexes] == ["by_a"]
    check_store(bench, tmp_path)


def test_an_index_that_two_nodes_of_the_table_need(bench: Building, tmp_path: Path) -> None:
    """The table has a node for each number of columns that views use.  Both views are dropped at once, and the table
    still declares the index: when it was complete, the worker ended, because it looked the build up a second time."""
    assert alter(bench, BY_A).error is None
    bench.define("CREATE VIEW few AS SELECT id FROM t WHERE a = ?")
    table = bench.store.tables()["t"]
    wider = replace(table, columns=(*table.columns, Column("c", INT, has_default=True, default=5, initial=5)))
    bench.catalog.tables["t"] = wider
    assert bench.change(packets.Migrate((packets.AlterTable(wider),), ())).error is None
    assert bench.define("CREATE VIEW more AS SELECT id, c FROM t WHERE a = ?").filling == ("more",)
    assert len({n.id for n, _ in bench.worker.engine.builds.indexes}) == 2, "otherwise this test shows nothing"
    await_indexes(bench)
    bench.change(packets.Migrate((packets.DropView("few"), packets.DropView("more")), ()))
    assert len(bench.building()) == 1
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)] and bench.building() == []
    check_store(bench, tmp_path)


def test_a_crash_while_it_is_built(bench: Building, tmp_path: Path) -> None:
    """The declaration is durable; a restarted worker begins to build again."""
    alter(bench, BY_A, IndexDef("pair", (2, 1)))
    bench.put((ROWS, 3))
    bench.worker.close()
    again = Building(tmp_path / "base")
    try:
        assert [i.name for i in again.store.tables()["t"].indexes] == ["by_a", "pair"] and not families(again)
        again.worker.engine.builds.at_once_rows = 100
        again.worker.step([packets.Envelope(1, -1, 0, packets.Migrate((), (), durable=False, each=True))])
        again.replies.clear()
        await_indexes(again)
        assert again.replies == []
        again.idle()
        assert again.replies == [packets.Done(WAITING)]
        assert sorted(i.name for i in again.store.table("t").indexes) == ["by_a", "pair"]
        again.rows = dict(bench.rows)
        check_store(again, tmp_path)
    finally:
        again.worker.close()


def test_a_table_that_is_dropped_meanwhile(bench: Building) -> None:
    alter(bench, BY_A)
    await_indexes(bench)
    bench.change(packets.Migrate((packets.DropTable("t"),), ()))
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)] and bench.building() == [] and not families(bench)


def test_an_index_that_cannot_be_begun_delays_no_other_change(bench: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: waiting requests receive the error, other changes are made, and the next change tries again."""
    full, begin = SqlError(1021, "HY000", "Disk full"), bench.store.begin_index

    def refused(table: str, columns: tuple[int, ...], awaited: bool = False) -> object:
        if columns == BY_A.columns:
            raise full
        return begin(table, columns, awaited)

    with monkeypatch.context() as patched:
        patched.setattr(bench.store, "begin_index", refused)
        assert alter(bench, BY_A).error is None
        await_indexes(bench)
        assert bench.replies == [packets.Done(WAITING, error=full)]
        assert bench.define("CREATE VIEW w AS SELECT a FROM t WHERE id = ?").error is None
        assert bench.change(packets.Migrate((packets.DropView("w"),), ())).error is None
    bench.replies.clear()
    bench.change(packets.Migrate((), ()))
    await_indexes(bench)
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)]
    assert [i.name for i in bench.store.table("t").indexes] == ["by_a"]


def test_a_unique_index_by_which_rows_are_looked_up(bench: Building, tmp_path: Path) -> None:
    """It can be dropped when another index has replaced it."""
    pair = IndexDef("pair", (1, 0), unique=True)
    bench.replies += [r.body for r in bench.worker.step([packets.Envelope(1, -1, 0, packets.CheckRowsFit(
        WAITING, replace(bench.store.tables()["t"], indexes=(pair,))))])]
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)] and alter(bench, pair).error is None
    assert bench.define("CREATE VIEW w AS SELECT id FROM t WHERE a = ?").filling == (), "by the first column"
    for _ in range(2):
        error = alter(bench).error
        assert error is not None and error.code == 1553 and "another one is being built" in error.message
        assert [b["what"] for b in bench.building()] == ["index of table t by a"]
    assert bench.all_of("w", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    bench.replies.clear()
    for what in ("indexed", "looked up"):
        request = packets.Envelope(1, -1, 0, packets.Inspect(WAITING, what, "t"))
        bench.replies += [r.body for r in bench.worker.step([request])]
        assert len(bench.replies) == 1, "nobody declares it"
    bench.idle()
    assert len(bench.replies) == 2 and alter(bench).error is None
    assert bench.all_of("w", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    check_store(bench, tmp_path)
