"""First states and indexes in slices, between the packets of a worker on a real store, while their tables are written,
read, dropped or damaged, and while requests are cancelled or states are too large."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow.building import ROWS, WAITING, Building
from noria.core.statements import Insert
from noria.core.values import to_arrow
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.ops.stateful.aggregate import Aggregate
from noria.plan.mir import Distinct
from noria.sql.commands import CreateView


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Building]:
    made = Building.filled(tmp_path / "base")
    yield made
    made.worker.close()


def test_a_full_view_is_built_between_writes(bench: Building) -> None:
    rng = random.Random(7)
    assert bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0").filling
    bench.await_view("counts")
    assert bench.replies == []
    writes = 0
    while not bench.replies:
        id = rng.randrange(ROWS * 2)
        if id not in bench.rows:
            bench.put((id, id % 7))
        elif rng.random() < 0.1:
            bench.delete_below(min(bench.rows) + rng.randrange(20))
        writes += 1
        assert writes < 5_000
    assert bench.replies == [packets.Done(WAITING)]
    assert writes > 5, "it was built at once, so this test shows nothing"
    validate(bench.worker.engine)
    assert bench.all_of("counts") == Counter(Counter(bench.rows.values()).items())
    assert bench.building() == []


def test_rows_written_before_the_snapshot_of_a_first_state_count_once(
        bench: Building, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They were in the snapshot, and among the deltas kept back since the view was made."""
    worker = bench.worker
    monkeypatch.setattr(worker.changes, "_large", 1_000)
    made = bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    ((_, number, _),) = made.bootstrap
    bench.put(*((ROWS + i, i % 7) for i in range(50)))
    bench.delete_below(20)
    assert bench.send(packets.Snapshot(1, str(tmp_path / "checkpoint"), node=number)).error is None
    node = next(n for n in worker.engine.graph.nodes if n.id == number)
    rows = worker.engine.all_rows(node.parents[0])  # the rows that Spark computes over the snapshot
    columns = {f"c{i}": to_arrow(c, f.type, worker._symbols)
               for i, (c, f) in enumerate(zip(rows.columns, node.parents[0].fields, strict=True))}
    files = pa.RecordBatch.from_pydict({**columns, "weight": pa.array(rows.weights)})
    monkeypatch.setattr(worker, "_read_files", lambda _: [files])
    bench.put(*((2 * ROWS + i, i % 7) for i in range(50)))
    bench.send(packets.Snapshot(2, str(tmp_path / "other")))  # for a node that does not exist
    bench.delete_below(40)
    start = packets.Bootstrap("counts", number, (), WAITING)
    bench.replies += [r.body for r in worker.step([Envelope(1, -1, 0, start)])]
    assert not bench.replies
    bench.put(*((3 * ROWS + i, i % 7) for i in range(50)))
    bench.send(packets.Snapshot(3, str(tmp_path / "late"), node=number))  # sent twice
    bench.idle()
    assert packets.Done(WAITING) in bench.replies
    validate(worker.engine)
    assert bench.all_of("counts") == Counter(Counter(bench.rows.values()).items())


@pytest.mark.parametrize("other", ["few", "u"])  # in a plan it is left of t, and right of it
def test_no_step_reads_a_whole_side_of_a_join(bench: Building, monkeypatch: pytest.MonkeyPatch, other: str) -> None:
    """All rows of the smaller side, which is looked up, were read when the build began, if it was the left side."""
    bench.define(f"CREATE TABLE {other} (k INT PRIMARY KEY, x INT)")
    bench.change(packets.Write((Insert(other, (0, 1), tuple((i, i) for i in range(1_000))),)))
    store, read = bench.worker.engine.store, list[int]()
    scan = store.scan

    def counted(*args: Any) -> Any:
        rows, after = scan(*args)
        read.append(len(rows))
        return rows, after

    monkeypatch.setattr(store, "scan", counted)
    assert bench.define(f"CREATE VIEW both AS SELECT x, COUNT(*) AS n FROM {other} JOIN t ON k = t.a GROUP BY x "
                        "HAVING n >= 0").filling
    bench.idle()
    assert max(read) < 1_000 and sum(read) <= ROWS + 1_000, "a side was read at once, or twice"
    validate(bench.worker.engine)
    assert bench.all_of("both") == Counter(Counter(bench.rows.values()).items())


def test_unfinished_builds_are_reported(bench: Building) -> None:
    bench.define("CREATE VIEW sums AS SELECT a, SUM(id) AS s FROM t GROUP BY a HAVING s > ?")
    reply = bench.send(packets.Read(5, "sums", [(1,)]))
    assert reply.error is not None and reply.error.code == 1205
    shown = bench.building()
    assert shown[0]["views"] == ["sums"] and shown[0]["state"] == "runs" and 0 < shown[0]["rows"] < ROWS
    assert shown[1]["state"] == "waits"  # the reader, for the aggregate
    explained = bench.send(packets.Inspect(6, "explain", "sums")).value
    assert "being built: " in explained and f"of {ROWS} rows" in explained
    bench.idle()
    assert "being built" not in bench.send(packets.Inspect(6, "explain", "sums")).value


def test_a_partial_view_waits_for_its_index(bench: Building) -> None:
    assert bench.define("CREATE VIEW by_a AS SELECT id FROM t WHERE a = ?").filling == ("by_a",)
    bench.await_view("by_a")
    assert bench.building()[0]["what"] == "index of table t by a"
    bench.put((ROWS, 3), (ROWS + 1, 4))
    bench.delete_below(10)
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)]
    assert bench.all_of("by_a", (3,)) == Counter((i,) for i, a in bench.rows.items() if a == 3)
    validate(bench.worker.engine)


def test_a_view_that_is_dropped_leaves_nothing(bench: Building) -> None:
    families = set(bench.store.engine.families())
    for text in ("CREATE VIEW w AS SELECT id FROM t WHERE a = ?",
                 "CREATE VIEW w AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n > ?"):
        bench.define(text)
        bench.await_view("w")
        bench.change(packets.Migrate((packets.DropView("w"),), ()))
        bench.idle()
        (reply,) = bench.replies
        assert reply.error is not None and reply.error.code == 1146
        bench.replies.clear()
        bench.catalog.views.pop("w")
        assert bench.building() == []
        assert set(bench.store.engine.families()) == families
        assert bench.worker.engine.graph.nodes == []


def test_a_cancelled_request_is_answered(bench: Building) -> None:
    bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    bench.await_view("counts")
    bench.cancelled.add(WAITING)
    bench.put((ROWS, 1))
    (reply,) = bench.replies
    assert reply.error is not None and reply.error.code == 1317
    bench.idle()
    assert bench.all_of("counts")  # only the waiting request was cancelled


def test_a_state_that_is_too_large_ends_its_build_only(bench: Building) -> None:
    bench.worker.engine.builds.state_bytes = 20_000
    bench.define("CREATE VIEW copied AS SELECT id, a FROM t")
    bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    bench.await_view("copied")
    bench.idle()
    (reply,) = bench.replies
    assert reply.error is not None and reply.error.code == 1114
    assert bench.send(packets.Read(5, "copied", [()])).error == reply.error
    assert bench.building()[0]["state"] == "failed"
    assert bench.all_of("counts") == Counter(Counter(bench.rows.values()).items())
    bench.put((ROWS, 1))
    bench.change(packets.Migrate((packets.DropView("copied"),), ()))
    assert bench.building() == []


def test_a_defect_in_a_slice_ends_its_build_only(bench: Building, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("a defect")

    bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    bench.await_view("counts")
    monkeypatch.setattr(Aggregate, "tick", broken)
    bench.idle()
    (reply,) = bench.replies
    assert reply.error is not None and reply.error.code == 1105
    assert any("RuntimeError: a defect" in n for n in bench.notes)
    bench.put((ROWS, 1))  # the worker continues


@pytest.mark.parametrize("text", ["CREATE VIEW w AS SELECT id, a FROM t WHERE a = ?",
                                  "CREATE VIEW w AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0"])
def test_a_bulk_load_during_a_build_is_in_it(bench: Building, text: str) -> None:
    """Its rows are added without deltas, before and behind the place that the build has reached."""
    bench.define(text)
    loaded = [(-5, 3), (-4, 3), (ROWS + 5, 3)]
    for _ in range(3):
        bench.put((ROWS, 3))
    assert 0 < bench.building()[0]["rows"] < ROWS
    bench.seq += 1
    bench.store.write([Insert("t", (0, 1), loaded)], 1, bench.seq)
    bench.worker.engine.builds.restart("t")
    bench.worker.engine.reload("t")
    bench.rows.update(loaded)
    bench.idle()
    if "WHERE" in text:
        assert bench.all_of("w", (3,)) == Counter((i, a) for i, a in bench.rows.items() if a == 3)
    else:
        assert bench.all_of("w") == Counter(Counter(bench.rows.values()).items())
    validate(bench.worker.engine)


def test_a_crash_in_a_build_leaves_the_table_as_it_was(bench: Building, tmp_path: Path) -> None:
    bench.define("CREATE VIEW by_a AS SELECT id FROM t WHERE a = ?")
    bench.put((ROWS, 3))
    bench.worker.close()  # nothing of the index is in the catalog
    again = Building(tmp_path / "base")
    try:
        assert not again.store.table("t").indexes
        assert len([f for f in again.store.engine.families() if f.startswith("t1")]) == 1
    finally:
        again.worker.close()


def test_slices_share_a_busy_worker(bench: Building) -> None:
    """Between two packets at most one slice runs, and after a long slice none for the same time."""
    bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    builds, steps = bench.worker.engine.builds, []
    slice_of = builds.step
    builds.step = lambda: (steps.append(1), slice_of())[1]
    for i in range(10):
        before = len(steps)
        bench.put((ROWS + i, 1))
        assert len(steps) <= before + 1
    assert 0 < len(steps) < 10


def test_replaced_while_the_old_one_answers(bench: Building) -> None:
    """CREATE OR REPLACE builds the new view beside the old one, then replaces that."""
    bench.define("CREATE VIEW w AS SELECT a FROM t WHERE id = ?")
    assert bench.all_of("w", (5,)) == Counter([(5,)])
    bench.catalog.views.pop("w")
    (command,) = bench.catalog.run("CREATE VIEW w AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    assert isinstance(command, CreateView)
    beside = replace(command.view, name="w\0 2")
    bench.change(packets.Migrate((packets.AddView(beside),), ()))
    assert bench.all_of("w", (5,)) == Counter([(5,)])
    bench.idle()
    steps = (packets.DropView("w"), packets.RenameView("w\0 2", "w"))
    assert bench.change(packets.Migrate(steps, ())).error is None
    assert bench.all_of("w") == Counter(Counter(bench.rows.values()).items())
    refused = bench.change(packets.Migrate((packets.DropView("w"), packets.RenameView("no", "w")), ()))
    assert refused.error is not None and bench.all_of("w")
    bench.put((ROWS, 1))
    assert bench.all_of("w") == Counter(Counter(bench.rows.values()).items())


def test_checking_a_view_makes_nothing(bench: Building) -> None:
    """CREATE VIEW checks a view that nobody reads yet."""
    bench.define("CREATE VIEW w AS SELECT a FROM t WHERE id = ?")
    nodes = list(bench.worker.engine.graph.nodes)
    (command,) = bench.catalog.run("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    assert isinstance(command, CreateView)
    made = bench.change(packets.Migrate((packets.CheckView(command.view),), ("CREATE VIEW counts …",)))
    assert (made.error, made.explain, made.filling) == (None, (), ())
    assert bench.worker.engine.graph.nodes == nodes and not bench.worker.engine.builds
    assert bench.worker.hello().recipe == ("CREATE VIEW counts …",)
    assert bench.send(packets.Read(1, "counts", [()])).error.code == 1146
    unlike = replace(command.view, plan=Unknown(command.view.plan))
    with pytest.raises(KeyError):
        bench.worker.changes.change((packets.DropView("w"), packets.CheckView(unlike)))
    assert bench.all_of("w", (5,)) == Counter([(5,)])


class Unknown(Distinct):
    """A plan node without an operator."""


def test_a_bulk_load_builds_full_views_again_in_slices(bench: Building) -> None:
    """It was one step of the worker. Views over few rows, and reads of other views, must not wait."""
    bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    bench.idle()
    loaded = [(-5, 3), (-4, 3), (ROWS + 5, 3)]
    bench.seq += 1
    bench.store.write([Insert("t", (0, 1), loaded)], 1, bench.seq)
    bench.worker.engine.builds.restart("t")
    bench.worker.engine.reload("t")
    bench.rows.update(loaded)
    assert not bench.worker.engine.ready("counts")
    bench.await_view("counts")
    bench.put((ROWS + 6, 2))
    bench.delete_below(20)
    bench.idle()
    assert bench.replies == [packets.Done(WAITING)]
    assert bench.all_of("counts") == Counter(Counter(bench.rows.values()).items())
    validate(bench.worker.engine)


def test_a_complete_state_does_not_wait_for_a_newer_index(bench: Building) -> None:
    """No tick updated it while another view's index was built, and it was filled twice at the next change."""
    bench.define("CREATE VIEW counts AS SELECT a, COUNT(*) AS n FROM t GROUP BY a HAVING n >= 0")
    builds = bench.worker.engine.builds
    builds.step()
    bench.define("CREATE VIEW by_b AS SELECT id FROM t WHERE b = ?")
    index = next(iter(builds.indexes.values()))
    while len(builds.states) == 2:
        index.rows = 1
        builds.step()
    assert builds.indexes, "the index was complete before the state, so this test shows nothing"
    bench.put((ROWS, 3))
    bench.define("CREATE VIEW by_id AS SELECT a FROM t WHERE id = ?")
    bench.idle()
    validate(bench.worker.engine)
    assert bench.all_of("counts") == Counter(Counter(bench.rows.values()).items())


def test_a_full_state_gains_an_index_in_slices(bench: Building) -> None:
    """A new view looks an aggregate up by another column: all of its rows were copied to a new table at once."""
    bench.define("CREATE TABLE k (id INT PRIMARY KEY, n INT)")
    bench.change(packets.Write((Insert("k", (0, 1), tuple((i, i % 5) for i in range(50))),)))
    grouped = "SELECT id, a, COUNT(*) AS n FROM t GROUP BY id, a"
    bench.define(f"CREATE VIEW one AS {grouped} HAVING n >= 1")
    bench.idle()
    engine = bench.worker.engine
    (node,) = (n for n in engine.graph.nodes if isinstance(n.op, Aggregate))
    state = node.state
    made = bench.define(f"CREATE VIEW both AS SELECT k.id, COUNT(*) AS c FROM k JOIN ({grouped}) AS g ON g.a = k.n "
                        "GROUP BY k.id HAVING c >= 0")
    assert node.state is state, "its table was made anew"
    assert made.filling == ("both",)
    assert any(b["what"].startswith(f"first state of n{node.id},") for b in bench.building()), bench.building()
    bench.put((ROWS + 1, 3))
    assert sum(bench.all_of("one").values()) == len(bench.rows)
    bench.delete_below(5)
    bench.idle()
    assert node.state is not state
    validate(engine)
    by_a = Counter(bench.rows.values())
    assert bench.all_of("both") == Counter((i, by_a[i % 5]) for i in range(50))
    indexes = set(node.stored.table.indexes)
    bench.send(packets.Migrate((packets.DropView("both"),), ("",), False))
    assert set(node.stored.table.indexes) == indexes, "its table was made anew"
    bench.put((ROWS + 2, 3))
    validate(engine)
