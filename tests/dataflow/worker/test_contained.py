"""An exception in a request is that request's error: the worker answers it, keeps its states correct and continues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataflow.bench import Bench, rows
from noria.core.errors import InvariantViolation, SqlError
from noria.core.statements import Insert
from noria.dataflow.engine.engine import Engine
from noria.dataflow.inspect.validate import validate
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.dataflow.worker.commits import TickFailed
from noria.dataflow.worker.worker import Worker
from noria.lowering.lower import Lowering
from noria.plan.graph_plan import GraphPlan
from noria.state.symbols.symbols import SymbolTable
from noria.views.writer import ViewDirectory


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "base")
    assert made.define("CREATE TABLE t (id INT PRIMARY KEY, a INT)").error is None
    assert made.define("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a").error is None
    made.insert(*((i, i % 3) for i in range(30)))
    yield made
    made.worker.close()


def test_an_unforeseen_exception_of_a_read_is_its_error_and_its_keys_are_derived_again(
        bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    assert rows(bench.read(1)) == [(1, 10)]

    def broken(*args: Any) -> None:
        raise RecursionError("too deep")

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "fill", broken)
        reply = bench.read(2)
    assert reply.error is not None and reply.error.code == 1105 and "W0.1.1" in reply.error.message
    assert "internal error W0.1.1 in Read" in bench.notes[0] and "too deep" in bench.notes[0]
    validate(bench.worker.engine)
    bench.insert((100, 2), (101, 1))
    assert rows(bench.read(2)) == [(2, 11)] and rows(bench.read(1)) == [(1, 11)]


def test_one_statement_of_a_group_fails_by_itself(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    class Row(tuple):
        def __len__(self) -> int:
            raise MemoryError("no room")

    inserts = [Insert("t", (0, 1), [row]) for row in ((200, 5), Row((201, 5)), (202, 5))]
    reply = bench.change(packets.Write(tuple(inserts)))
    assert [r.error and r.error.code for r in reply.results] == [None, 1105, None]
    assert rows(bench.read(5)) == [(5, 2)]
    validate(bench.worker.engine)


ODD: list[Any] = [
    packets.Read(1, "v", [("x", 1, 2)]), packets.Read(1, "v", [()]), packets.Read(1, "v", [(object(),)]),
    packets.Read(1, "v", [(2**70,)]), packets.Read(1, "v", None), packets.Read(1, "nosuch", [(1,)]),
    packets.Read(1, "v", [(float("nan"),)]), packets.Read(1, "v", [("\ud800",)]),
    packets.Read(1, "v", [(1,)], key_range=(5, 1)), packets.Read(1, "v", (), key_range=("a", None)),
    packets.Evict(1, "all"), packets.Evict(1, -5), packets.SetLimit("much", 1),
    packets.Inspect(1, "x"), packets.Inspect(1, "analyze"), packets.Inspect(1, "table", "nosuch"),
    packets.Snapshot(1, "/nosuch/dir/x"), packets.Bootstrap("v", 99, (), 1),
    packets.Write((Insert("nosuch", (0,), [(1,)]),)), packets.Write((Insert("t", (0, 7), [(1, 1)]),)),
    packets.Write((Insert("t", (0, 1), [(1,)]),)), packets.Write((None,)),
    packets.Migrate((packets.AddView(None),), ()), packets.Migrate((packets.DropTable("nosuch"),), ()),
    packets.IndexFiles("1.1", ("/nosuch.sst",)), packets.IndexFiles("", None),
    packets.Inspect(1, "index no longer awaited", "1.1"), packets.Migrate((), (), adopt=1e308),
    packets.Migrate((), (), adopt=GraphPlan((), 1, (), {}, {}, {})),
    packets.Ingest("nosuch", (), 1), packets.Ingest("t", (("f", ("/nosuch.sst",)),), 1),
]


@pytest.mark.parametrize("body", ODD, ids=range(len(ODD)))
def test_packets_that_no_client_can_send_are_answered(bench: Bench, body: Any) -> None:
    changes = isinstance(body, (packets.Write, packets.Migrate, packets.Ingest))
    reply = bench.change(body) if changes else bench.send(body)
    assert isinstance(reply, (packets.Rows, packets.Done, packets.Wrote, packets.Migrated))
    validate(bench.worker.engine)
    bench.insert((300, 1))
    assert rows(bench.read(1)) == [(1, 11)]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("body", [
    packets.Read(1, "v", [(1,)], fill=NotImplemented), packets.Read(1, "v", [(1,)], nulls=NotImplemented),
    packets.Inspect(1, "explain", "v", packets.Read(1, "v", [(1,)], nulls=NotImplemented)),
    packets.Query(1, None, [(1,)], descending=...),
    packets.Query(1, None, [(1,)], nulls=NotImplemented),
    packets.Snapshot(1, "/nosuch", views=NotImplemented), packets.Migrate((), (), each=NotImplemented),
], ids=repr)
def test_a_flag_that_is_none_is_refused(bench: Bench, body: Any) -> None:
    """Values that are true or false in Python and are no flags."""
    reply = bench.change(body) if isinstance(body, packets.Migrate) else bench.send(body)
    assert reply.error is not None and " is no bool of a packet" in reply.error.message


def test_a_broken_invariant_and_a_failed_tick_end_the_worker(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def violated(*args: Any) -> None:
        raise InvariantViolation("HOLE-CLOSED", "of the test")

    def broken(*args: Any) -> None:
        raise ZeroDivisionError

    bench.insert((301, 2))
    bench.read(1)
    with monkeypatch.context() as patched, pytest.raises(InvariantViolation) as caught:
        patched.setattr(Engine, "fill", violated)
        bench.read(2)
    story = caught.value.story.splitlines()
    assert story[-2].startswith("Read ") and story[-1].endswith(" misses (2)")  # the last events, in order
    assert any(" emits +1(" in line for line in story) and any(" fills (1) from " in line for line in story)
    assert bench.notes[-1] == str(caught.value) and str(caught.value).startswith("HOLE-CLOSED: of the test\nstory:\n")
    with monkeypatch.context() as patched, pytest.raises(TickFailed):
        patched.setattr(Engine, "tick", broken)
        bench.insert((400, 1))


def test_a_read_ends_when_its_time_is_over_and_when_it_is_cancelled(bench: Bench) -> None:
    reply = bench.read(1, limit_ms=1)
    assert reply.error is not None and reply.error.code == 3024
    bench.cancelled.add(2**40 + bench.request + 1)
    reply = bench.read(2)
    assert reply.error is not None and reply.error.code == 1317
    validate(bench.worker.engine)
    assert rows(bench.read(1)) == [(1, 10)] and rows(bench.read(2)) == [(2, 10)]


def test_a_cancelled_write_changes_nothing_if_it_scans(bench: Bench) -> None:
    from noria.core.statements import Delete

    bench.cancelled.add(bench.seq + 1)
    reply = bench.change(packets.Write((Delete("t", None),)))
    assert reply.results[0].error is not None and reply.results[0].error.code == 1317
    assert rows(bench.read(1)) == [(1, 10)]


def test_a_request_is_reported_before_it_begins(bench: Bench) -> None:
    bench.began.clear()
    bench.read(1)
    bench.insert((500, 1))
    assert bench.began == [2**40 + bench.request, 0, bench.seq, 0]


def test_a_view_that_cannot_be_made_in_recovery_is_left_out_alone(bench: Bench, monkeypatch: pytest.MonkeyPatch
                                                                  ) -> None:
    bench.define("CREATE VIEW w AS SELECT id, a FROM t WHERE id = ?")
    views = [packets.AddView(v) for v in bench.worker.changes.views.values()]
    symbols = SymbolTable(None)
    made = Lowering.add_view

    def add(self: Lowering, view: Any) -> None:
        if view.name == "w":
            raise KeyError("of the test")
        made(self, view)

    monkeypatch.setattr(Lowering, "add_view", add)
    again = Worker(bench.store, symbols, ViewDirectory(None, symbols), Lowering)
    (reply,) = again.step([Envelope(1, -1, 0, packets.Migrate(tuple(views), (), durable=False, each=True))])
    assert isinstance(reply.body, packets.Migrated) and reply.body.error is None
    assert [name for name, _ in reply.body.failed] == ["w"]
    assert isinstance(reply.body.failed[0][1], SqlError) and list(again.engine.readers) == ["v"]
