"""Reads that arrive together are answered at once, except those with an error or a wait of their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dataflow.bench import Bench, rows
from noria.dataflow.engine.engine import Engine
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope, ReadMany, ReadManyReply, Rows, SameViewReads


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "base")
    assert made.define("CREATE TABLE t (id INT PRIMARY KEY, a INT)").error is None
    assert made.define("CREATE VIEW v AS SELECT a, COUNT(*) AS n FROM t WHERE a = ? GROUP BY a").error is None
    assert made.define("CREATE VIEW w AS SELECT id, 10 DIV a AS x, POW(10, a) AS p FROM t WHERE id = ?").error is None
    made.insert(*((i, i % 3) for i in range(30)), (1_000, 400))
    yield made
    made.worker.close()


def many_replies(bench: Bench, *alike: SameViewReads) -> list[Any]:
    return [e.body for e in bench.worker.step([Envelope(1, -1, 0, ReadMany(2**41, alike))])]


def test_keys_of_views_in_one_answer(bench: Bench) -> None:
    (reply,) = many_replies(bench, SameViewReads("v", 0, 0, (11, 12, 13), ((2,), (7,), (0,))),
                            SameViewReads("w", 0, 0, (14,), ((4,),)))
    assert isinstance(reply, ReadManyReply) and reply.error is None and reply.request == 2**41
    (of_v, v), (of_w, w) = reply.parts
    assert of_v == (11, 12, 13) and of_w == (14,)
    assert sorted(zip(*(c.to_pylist() for c in v.columns), strict=True)) == [(0, 10, 2), (2, 10, 0)]
    assert w.column("__key").to_pylist() == [0] and w.column("c0").to_pylist() == [4]


def test_an_error_is_that_of_its_key(bench: Bench) -> None:
    """10 to the power of 400 is no DOUBLE."""
    replies = many_replies(bench, SameViewReads("w", 0, 0, (21, 22, 23), ((3,), (1_000,), (4,))))
    reply, one, wrong, other = replies
    assert isinstance(reply, ReadManyReply) and reply.parts == ()
    assert [r.request for r in (one, wrong, other)] == [21, 22, 23]
    assert len(rows(one)) == len(rows(other)) == 1 and wrong.error.code == 1690


def test_each_read_of_a_dropped_or_redefined_view_has_the_error(bench: Bench) -> None:
    replies = many_replies(bench, SameViewReads("no", 0, 0, (31,), ((1,),)), SameViewReads("v", 99, 0, (32,), ((1,),)),
                           SameViewReads("v", 0, 0, (33,), ((1,),)))
    assert isinstance(replies[0], ReadManyReply) and [of for of, _ in replies[0].parts] == [(33,)]
    assert [(r.request, r.error.code) for r in replies[1:]] == [(31, 1146), (32, 1412)]


def test_an_unforeseen_exception_is_that_of_each(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RecursionError("too deep")

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "fill", broken)
        reply, *each = many_replies(bench, SameViewReads("v", 0, 0, (41, 42), ((1,), (2,))))
    assert reply.parts == () and [r.error.code for r in each] == [1105, 1105]
    assert isinstance(each[0], Rows) and rows(bench.read(1)) == [(1, 10)]


def test_cancelled_reads_delay_nobody(bench: Bench) -> None:
    bench.cancelled |= {51}
    _, *each = many_replies(bench, SameViewReads("v", 0, 0, (51,), ((1,),)))
    assert [r.error.code for r in each] == [1317]
    bench.cancelled |= {52}
    (reply,) = many_replies(bench, SameViewReads("v", 0, 0, (52, 53), ((1,), (2,))))
    assert len(reply.parts[0][0]) == 2


def test_a_malformed_packet_of_reads_is_rejected(bench: Bench) -> None:
    (reply,) = [e.body for e in bench.worker.step([Envelope(1, -1, 0, packets.ReadMany(1, 5))])]
    assert isinstance(reply, ReadManyReply) and reply.error is not None and "ReadMany.alike" in reply.error.message
