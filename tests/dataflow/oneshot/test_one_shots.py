"""One-shots in their turns: writes run first, large results are sent in chunks, cancelled queries end soon."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dataflow.bench import Bench
from noria.core.statements import Insert
from noria.dataflow.messages import packets
from noria.dataflow.messages.packets import Envelope
from noria.sql.commands import Select
from noria.sql.parse import parse

ROWS = 10_000
ALL = "SELECT id, a + {} AS a FROM t"


class Shots(Bench):
    """A bench with a table of many rows, and queries of it."""

    def query(self, number: int, text: str, chunked: bool = True) -> Envelope:
        (command,) = parse(text, self.catalog)
        assert isinstance(command, Select)
        assert command.view is not None
        return Envelope(1, -1, 0, packets.Query(2**41 + number, command.view, [()], rows=20_000, limit_ms=10**6,
                                                chunked=chunked))

    def step(self, *envelopes: Envelope) -> list[Any]:
        return [e.body for e in self.worker.step(envelopes)]

    def until(self, number: int) -> packets.Rows:
        """Work until the query is answered. Returns the reply."""
        for _ in range(1_000):
            for e in self.worker.idle(5)[0]:
                if isinstance(e.body, packets.Rows) and e.body.request == 2**41 + number:
                    return e.body
        raise AssertionError("the query does not end")

    def more(self, of: int, number: int, stop: bool = False) -> Envelope:
        return Envelope(1, -1, 0, packets.NextRows(2**41 + number, 2**41 + of, stop))


@pytest.fixture
def shots(tmp_path: Path) -> Iterator[Shots]:
    made = Shots(tmp_path / "base")
    assert made.define("CREATE TABLE t (id INT PRIMARY KEY, a INT)").error is None
    for at in range(0, ROWS, 1_000):
        made.insert(*((i, i % 3) for i in range(at, at + 1_000)))
    yield made
    made.worker.close()


def write(shots: Shots, key: int) -> Envelope:
    shots.seq += 1
    return Envelope(1, -1, shots.seq, packets.Write((Insert("t", (0, 1), ((key, 1),)),)))


def test_writes_that_arrive_with_queries_are_answered_first(shots: Shots) -> None:
    envelopes = [shots.query(n, ALL.format(n)) for n in range(20)]
    replies = [e.body for e in shots.worker.handle([*envelopes, write(shots, ROWS)])]
    assert [type(r) for r in replies] == [packets.Wrote], "no query was run before it"


def test_many_queries_take_turns_with_writes(shots: Shots) -> None:
    """Between two checks of the socket at most one turn runs, whatever waits."""
    done = [r for r in shots.step(*[shots.query(n, ALL.format(n)) for n in range(40)]) if isinstance(r, packets.Rows)]
    for n in range(50):
        before = sum(a.scan.done for a in shots.worker.scans._waiting)
        (wrote, *_) = shots.step(write(shots, ROWS + n))
        assert isinstance(wrote, packets.Wrote)
        assert sum(a.scan.done for a in shots.worker.scans._waiting) - before <= 65_536
    assert not done


def test_the_chunks_of_a_large_result_have_all_its_rows(shots: Shots) -> None:
    shots.step(shots.query(0, ALL.format(0)))
    first = shots.until(0)
    assert first.error is None and first.left == ROWS - first.rows.num_rows > 0
    parts, number, left = [first.rows], 1, first.left
    while left:
        shots.insert((ROWS + number, 1))  # is not in it
        replies = shots.step(shots.more(0, number))
        (chunk,) = [r for r in replies if isinstance(r, packets.Rows)] or [shots.until(number)]
        assert chunk.error is None and chunk.left < left
        parts.append(chunk.rows)
        left, number = chunk.left, number + 1
    assert sorted(pa.concat_tables(parts).column(0).to_pylist()) == list(range(ROWS))
    assert not shots.worker.engine.scans and not len(shots.worker.shots.results)


def test_a_stopped_result_is_dropped(shots: Shots) -> None:
    shots.step(shots.query(0, ALL.format(0)))
    shots.until(0)
    assert shots.worker.engine.scans
    assert shots.step(shots.more(0, 1, stop=True)) == []
    assert not shots.worker.engine.scans
    shots.step(shots.more(0, 2))
    reply = shots.until(2) if shots.worker.shots.results else None
    assert reply is None or (reply.error is not None and reply.error.code == 1105)


def test_without_chunks_the_reply_has_all_rows(shots: Shots) -> None:
    shots.step(shots.query(0, ALL.format(0), chunked=False))
    reply = shots.until(0)
    assert reply.rows.num_rows == ROWS and not reply.left


def test_a_cancelled_query_ends_at_the_next_turn(shots: Shots) -> None:
    """A query that has not begun, one in slices, and a held result: each ends within one turn."""
    shots.step(shots.query(0, ALL.format(0)))
    shots.until(0)  # held
    shots.step(*[shots.query(n, ALL.format(n)) for n in range(1, 10)])
    scanned = {a.number: a.scan.done for a in shots.worker.scans._waiting}
    assert scanned and shots.worker.shots._fresh, "some have begun, and some have not"
    shots.cancelled |= {2**41 + n for n in range(10)}
    replies: list[Any] = []
    for _ in range(len(scanned) + 1):
        before = sum(a.scan.done for a in shots.worker.scans._waiting)
        replies += [e.body for e in shots.worker.idle(1)[0]]
        assert sum(a.scan.done for a in shots.worker.scans._waiting) <= before, "no row is read for it"
    assert {r.request for r in replies} == {2**41 + n for n in range(1, 10)}
    assert {r.error.code for r in replies} == {1317}
    assert not shots.worker.engine.scans and not shots.worker.shots.results.memory()


def test_one_shots_together_keep_within_their_memory(shots: Shots, monkeypatch: pytest.MonkeyPatch) -> None:
    """Large ones wait for each other, small ones continue, and all end."""
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.ONE_SHOTS_BYTES", 400_000)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.MOST_ROWS", 256)
    monkeypatch.setattr("noria.dataflow.oneshot.slicing.FIRST_ROWS", 256)
    most, replies = 0, dict[int, packets.Rows]()
    shots.step(*[shots.query(n, ALL.format(n), chunked=False) for n in range(8)],
               shots.query(8, "SELECT COUNT(*) AS n FROM t WHERE id >= 0"))
    order = []
    for _ in range(2_000):
        for e in shots.worker.idle(1)[0]:
            if isinstance(e.body, packets.Rows):
                replies[e.body.request - 2**41] = e.body
                order.append(e.body.request - 2**41)
        most = max(most, sum(a.scan.memory() for a in shots.worker.scans._waiting))
    assert sorted(replies) == list(range(9)) and {r.error for r in replies.values()} == {None}
    assert 8 in order[:2], "the count keeps little, and does not wait for room"
    assert most < 400_000 + 8 * ROWS * 3 + 8 * 256 * 32, "the room, the oldest one, a slice of each"
