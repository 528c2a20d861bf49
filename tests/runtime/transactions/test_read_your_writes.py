"""A session reads its own writes from several workers, even if the rows return to the worker that it wrote to."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from noria.core.keys import shard_of
from noria.core.types import INT
from noria.dataflow.messages.packets import Done, Inspect, Packet
from noria.runtime.link.link import LinkState
from noria.runtime.transactions.read_your_writes import ReadYourWrites
from noria.runtime.worker.worker_main import views_dir
from noria.server.fronts.replica import Replica
from noria.server.outcomes import Client
from noria.views.reader import attach
from runtime.several import Several

ROUNDS = 100
READ = ("SELECT p.id, p.score, v.who FROM posts p LEFT JOIN votes v ON v.post = p.id AND v.area = p.area "
        "WHERE p.owner = {}")


class Line:
    """A worker that has received no messages, and answers every question."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str]] = []

    def frontier_of(self, worker: int) -> int:
        return 0

    async def ask(self, body: Packet, retry: bool = False) -> Any:
        assert isinstance(body, Inspect)
        self.requests.append((body.what, body.argument))
        return Done(0)


def test_beyond_one_exchange_rows_return_to_their_sender() -> None:
    """Without the wait, a session that reads from the worker that it wrote to would read the old rows."""
    lines = [Line(), Line()]
    own = ReadYourWrites(lines)
    writes = own.wrote({0: ((1, 5),)})
    assert own.has(0, 1, writes), "over one exchange, its rows belong to another worker"
    assert not own.has(1, 1, writes) and not own.has(0, 2, writes)
    asyncio.run(own.catch_up(writes, 2, (0,)))
    assert lines[0].requests == [("caught up", "2 ")] and own.has(0, 2, writes)
    asyncio.run(own.catch_up(writes, 1, (0, 1)))
    assert len(lines[0].requests) == 1 and lines[1].requests == [("frontier", "0:5")]


def test_a_replica_tracks_own_writes() -> None:
    replica = Replica(1, 2)
    replica.routes.learn([("far", (0,), 2), ("near", (0,), 1)])
    writes = {0: (1, ((1, 5),))}
    assert replica.has(0, "near", writes) and not replica.has(0, "far", writes)
    replica.saw("far", 0, writes)
    assert replica.has(0, "far", writes)


@pytest.mark.parametrize("workers", [2, 3])
def test_rows_that_return_to_their_writer_are_read(tmp_path: Path, workers: int) -> None:
    """A vote is sent to its post, and from there to the view, on the worker to which it was written."""
    numbers = np.arange(100)
    owner, *_ = numbers[shard_of([numbers], [INT], workers) == 1].tolist()

    async def test() -> None:
        several = Several(tmp_path, workers)
        await several.start()
        try:
            for text in ("CREATE TABLE posts (area INT, id INT, owner INT, score INT, PRIMARY KEY (area, id))",
                         "CREATE TABLE votes (post INT, area INT, who INT PRIMARY KEY)",
                         f"CREATE MATERIALIZED VIEW seen AS {READ.format('?')}",
                         f"INSERT INTO posts VALUES {', '.join(f'(1, {i}, {owner}, 0)' for i in range(8))}"):
                await several.sql(text)
            session = several.sessions.connect(Client("u", "", 1, "localhost", False, True))
            for n in range(ROUNDS):
                await answered(session, f"INSERT INTO votes VALUES ({n % 8}, 1, {n})")
                answer = await answered(session, READ.format(owner))
                assert sorted(r[2] for r in answer.rows if r[2] is not None) == list(range(n + 1)), n
            assert several.link.routes.depth_of("seen") > 1, "the test needs two exchanges"
        finally:
            await several.stop()

    asyncio.run(test())


async def answered(session: Any, text: str) -> Any:
    answer = session.query(text, False)
    if hasattr(answer, "then"):
        await asyncio.wait((answer.future,))
        return answer.then(answer.future)
    return await answer if asyncio.iscoroutine(answer) or asyncio.isfuture(answer) else answer


def test_views_published_before_all_workers_were_lost_are_not_read(tmp_path: Path) -> None:
    """The written worker has no state yet and sends no messages.  The read worker's last life has published old rows,
    and applications that attach its memory read them without a request."""
    numbers = np.arange(1, 100)
    whose = shard_of([numbers], [INT], 2)
    owner, post = int(numbers[whose == 1][0]), int(numbers[whose == 0][0])

    async def test() -> None:
        several = Several(tmp_path, 2)
        await several.start()
        try:
            for text in ("CREATE TABLE posts (id INT PRIMARY KEY, owner INT, score INT)",
                         "CREATE MATERIALIZED VIEW seen AS SELECT owner, SUM(score) FROM posts WHERE owner = ? "
                         "GROUP BY owner",
                         f"INSERT INTO posts VALUES ({post}, {owner}, 0)"):
                await several.sql(text)
            read = f"SELECT owner, SUM(score) FROM posts WHERE owner = {owner} GROUP BY owner"
            writer, other = (several.sessions.connect(Client("u", "", i, "localhost", False, True)) for i in (1, 2))
            for session in (writer, other):
                assert (await answered(session, read)).rows == [(owner, 0)]
            attached = attach(str(views_dir(tmp_path / "run", 1, 2))).view("seen")
            assert attached.lookup((owner,)) == [(owner, 0)]
            for w in range(2):
                several.alive[w].kill()
            while several.link.state is LinkState.UP:
                await asyncio.sleep(0)
            await several.link.up()
            await answered(writer, f"UPDATE posts SET score = 7 WHERE id = {post}")
            assert attached.lookup((owner,)) is None, "a miss: the server must answer"
            for session in (writer, other):
                assert (await answered(session, read)).rows == [(owner, 7)]
            assert attached.lookup((owner,)) == [(owner, 7)]
        finally:
            await several.stop()

    asyncio.run(test())
